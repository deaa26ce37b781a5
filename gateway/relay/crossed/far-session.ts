// Sessions at hands of the handshake era, kept for clients that have none: one for each caller, hand and set of what a client can do.
//
//   F1  A session is a document, so that every node uses the same one. Whoever opens one while another node does gives its own back.
//   F2  It is opened with what the client declares, and with nothing else: a hand asks for nothing that this client can't give.
//   F3  A session that the hand lost (404) is replaced once by a new one; what ran in it is lost.

import { z } from "zod";
import { mintFrom } from "../../../session-store/ids.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import { canonical } from "../../idempotency.ts";
import { WORKSPACE } from "../../mcp/kept.ts";
import { REFUSED, RpcError } from "../../mcp/rpc.ts";
import { placeOf } from "../address.ts";
import { JSON_HEADERS, versionIn } from "../hello.ts";
import { ASIDE_MS, HELLO_MS } from "../limits.ts";
import type { Upstream } from "../upstream.ts";
import { Clock, type Incoming, messagesOf, type Params, recordOf } from "./incoming.ts";

export const FAR_KIND = "hand_far_session";
const TOUCH_MS = 60_000;
const HELLO_ID = "manyhands-initialize";
const LATEST = "2025-11-25";

const Body = z.object({
  /** The hand's own id for it; null: it gave none. */
  session: z.string().nullable(),
  version: z.string(),
  capabilities: z.record(z.string(), z.unknown()),
  serverInfo: z.unknown(),
  instructions: z.string().nullable(),
  workspace: z.string(),
  hand: z.string(),
  /** Where it was opened: a hand host keeps its sessions, and each gateway may have a host of its own. */
  place: z.string(),
  usedAt: z.number(),
});

export interface FarSession extends Readonly<z.infer<typeof Body>> {
  readonly id: string;
  readonly revision: number;
}

/** The hand does not know the session: the request did not run. F3 */
export class SessionLost extends Error {
  override readonly name = "SessionLost";
}

export interface Client {
  readonly caller: string;
  readonly info: unknown;
  readonly capabilities: Params;
}

export class FarSessions {
  readonly #store: SessionStore;
  readonly #opening = new Map<string, Promise<FarSession>>();

  constructor(store: SessionStore) {
    this.#store = store;
  }

  /** The same on every node. F1 */
  static idOf({ workspace, hand, address }: Upstream, { caller, capabilities }: Client): string {
    return mintFrom("far", workspace, hand.name, address.target ?? (address.isOwn ? address.url.pathname : address.url.href), caller, canonical(offered(capabilities)));
  }

  async find(id: string): Promise<FarSession | null> {
    const document = await this.#store.get(WORKSPACE, FAR_KIND, id);
    return document && { id, revision: document.revision, ...Body.parse(document.body) };
  }

  open(upstream: Upstream, client: Client): Promise<FarSession> {
    const id = FarSessions.idOf(upstream, client);
    const opening = this.#opening.get(id) ?? this.#open(id, upstream, client).finally(() => this.#opening.delete(id));
    this.#opening.set(id, opening);
    return opening;
  }

  /** F3 */
  async lost({ id, session }: FarSession): Promise<void> {
    const now = await this.find(id);
    if (now && now.session === session) await this.#discard(id);
  }

  async touch({ id, usedAt }: FarSession): Promise<void> {
    if (usedAt + TOUCH_MS > Date.now()) return;
    const now = await this.find(id);
    if (!now) return;
    const { id: _, revision, ...body } = now;
    try {
      await this.#store.put(WORKSPACE, [{ kind: FAR_KIND, id, body: { ...body, usedAt: Date.now() }, replaces: revision }]);
    } catch (error) {
      // Another node was faster, and said the same.
      if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
    }
  }

  /** Ends it here and at the hand. */
  async end(upstream: Upstream, far: FarSession): Promise<void> {
    await this.lost(far);
    await endThere(upstream, far.session, far.version);
  }

  async #open(id: string, upstream: Upstream, client: Client): Promise<FarSession> {
    const known = await this.find(id);
    if (known && upstream.at(known.place)) return known;
    if (known) await this.lost(known);
    const { opened, session } = await hello(upstream, client);
    const body: z.infer<typeof Body> = {
      ...opened,
      session,
      workspace: upstream.workspace,
      hand: upstream.hand.name,
      place: placeOf(upstream.address),
      usedAt: Date.now(),
    };
    try {
      const [written] = await this.#store.put(WORKSPACE, [{ kind: FAR_KIND, id, body, replaces: 0 }]);
      if (!written) throw new Error("a session was written and not given back");
      return { id, revision: written.revision, ...body };
    } catch (error) {
      await endThere(upstream, session, opened.version);
      const other = error instanceof Refusal && error.code === "document_changed" ? await this.find(id) : null;
      if (other) return other;
      throw error;
    }
  }

  async #discard(id: string): Promise<void> {
    try {
      await this.#store.discard(WORKSPACE, FAR_KIND, id);
    } catch (error) {
      if (!(error instanceof Refusal && error.code === "document_not_found")) throw error;
    }
  }
}

export function farHeaders({ session, version }: Pick<FarSession, "session" | "version">): Record<string, string> {
  return { ...JSON_HEADERS, "mcp-protocol-version": version, ...(session !== null && { "mcp-session-id": session }) };
}

/** Sends what has no answer. Throws `SessionLost`. */
export async function post(upstream: Upstream, far: Pick<FarSession, "session" | "version">, message: object): Promise<void> {
  const body = JSON.stringify({ jsonrpc: "2.0", ...message });
  const { status, body: answer } = await upstream.send({ method: "POST", headers: farHeaders(far), body, signal: AbortSignal.timeout(ASIDE_MS) });
  answer.resume().on("error", () => {});
  if (status === 404 && far.session !== null) throw new SessionLost("the hand does not know the session");
  if (status >= 400) throw new RpcError(REFUSED, `The hand answered with HTTP ${status}.`, { status: 502 });
}

/** F2. Roots are listed when asked for; their changes can't be told. */
export function offered({ roots, elicitation, sampling, ...others }: Params): Params {
  const { extensions } = others;
  return {
    ...(elicitation !== undefined && { elicitation }),
    ...(sampling !== undefined && { sampling }),
    ...(roots !== undefined && { roots: {} }),
    ...(extensions !== undefined && { extensions }),
  };
}

async function hello(upstream: Upstream, client: Client) {
  const params = {
    protocolVersion: LATEST,
    capabilities: offered(client.capabilities),
    clientInfo: client.info ?? { name: "manyhands", version: "1" },
  };
  const body = JSON.stringify({ jsonrpc: "2.0", id: HELLO_ID, method: "initialize", params });
  const clock = new Clock({ connectMs: HELLO_MS, idleMs: HELLO_MS, totalMs: HELLO_MS }, AbortSignal.timeout(HELLO_MS));
  try {
    const answer = await upstream.send({ method: "POST", headers: JSON_HEADERS, body, signal: clock.signal });
    const given = answer.headers["mcp-session-id"];
    const session = typeof given === "string" && given !== "" ? given : null;
    let said: Incoming = {};
    for await (const message of messagesOf(answer, clock)) {
      if (message.id !== HELLO_ID || message.method !== undefined) continue;
      said = message;
      break;
    }
    const version = versionIn(said.result);
    if (version === null) {
      const { code, message, data } = recordOf(said.error);
      throw new RpcError(Number.isSafeInteger(code) ? Number(code) : REFUSED, String(message ?? "The hand did not take the handshake."), {
        data,
        status: 502,
      });
    }
    const { capabilities, serverInfo, instructions } = recordOf(said.result);
    await post(upstream, { session, version }, { method: "notifications/initialized" });
    const opened = {
      version,
      capabilities: recordOf(capabilities),
      serverInfo,
      instructions: typeof instructions === "string" ? instructions : null,
    };
    return { opened, session };
  } finally {
    clock.stop();
  }
}

async function endThere(upstream: Upstream, session: string | null, version: string): Promise<void> {
  if (session === null) return;
  try {
    const headers = { "mcp-session-id": session, "mcp-protocol-version": version };
    const { body } = await upstream.send({ method: "DELETE", headers, body: null, signal: AbortSignal.timeout(ASIDE_MS) });
    body.resume().on("error", () => {});
  } catch {
    // The hand ends what nobody uses by itself.
  }
}
