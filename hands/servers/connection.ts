// One connection to an MCP server: opened in whichever era the server speaks, watched, and closed for good when it is broken.
//
//   C1  Streamable HTTP is tried in both eras (the stateless one first); a server that knows neither is tried as the old SSE kind. A child is spoken
//       to with a handshake first: a server that was never asked anything before it must not end at a question it does not know.
//   C2  What went wrong is a `Trouble` that says whether the request may have reached the server.
//   C3  A session id that the server forgot (404) is `isForgotten`: the request did not run, and a new connection may ask again.
//   C4  Nothing is offered to a server that it could ask for: no roots, no sampling, no elicitation.

import {
  Client,
  ProtocolError,
  SdkHttpError,
  SSEClientTransport,
  StreamableHTTPClientTransport,
  type Transport,
  UnauthorizedError,
} from "@modelcontextprotocol/client";
import { z } from "zod";
import { Unreachable } from "../address.ts";
import type { Child } from "./children.ts";
import { CLOSE_MS, REASON_CHARS_MAX } from "./limits.ts";
import type { Fetch } from "./reach.ts";
import { StdioTransport } from "./stdio.ts";
import { TooMuch } from "./too-much.ts";
import { VaultRefused } from "./vault-way.ts";
import { CLOSED, WatchedTransport } from "./watched.ts";

const SERVER_CHARS_MAX = 100;
const MODERN = "2026-07-28";
const NAME = { name: "manyhands", version: "1" };
/** A stream that a server closed on purpose is resumed, soon and a few times. */
const RESUME = { initialReconnectionDelay: 200, maxReconnectionDelay: 1_000, reconnectionDelayGrowFactor: 2, maxRetries: 2 };

export type Where =
  /** `isSse`: it is known to be of the old kind. */
  | { readonly type: "url"; readonly url: URL; readonly fetch: Fetch; readonly isSse?: boolean }
  /** `secrets`: what of its configuration is told to nobody. */
  | { readonly type: "command"; readonly secrets: readonly string[]; start(): Child };

export interface Heard {
  /** The server says that its tools are others now. */
  toolsChanged(): void;
  closed(): void;
  /** A line of standard output that is no frame. */
  stray(line: string): void;
  trouble(error: Error): void;
}

/** A request that came to no answer. C2 */
export class Trouble extends Error {
  override readonly name = "Trouble";
  readonly kind: "connection" | "authentication";
  /** False: the server has not had it. */
  readonly mayHaveRun: boolean;
  readonly isForgotten: boolean;

  constructor(message: string, options: { kind?: Trouble["kind"]; mayHaveRun?: boolean; isForgotten?: boolean; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.kind = options.kind ?? "connection";
    this.mayHaveRun = options.mayHaveRun ?? false;
    this.isForgotten = options.isForgotten ?? false;
  }
}

export interface RequestOptions {
  readonly signal: AbortSignal;
  /** More than any limit of ours: `signal` ends the request. */
  readonly timeoutMs: number;
  onProgress?(): void;
  readonly headers?: Readonly<Record<string, string>>;
}

const Result = z.looseObject({ _meta: z.record(z.string(), z.unknown()).optional() });

export class Connection {
  readonly #client: Client;
  readonly #wire: WatchedTransport;
  readonly #inner: Transport;
  #isOpen = true;

  private constructor(client: Client, wire: WatchedTransport, inner: Transport, heard: Heard) {
    this.#client = client;
    this.#wire = wire;
    this.#inner = inner;
    client.onclose = () => {
      if (this.#isOpen) heard.closed();
      this.#isOpen = false;
    };
    client.setNotificationHandler("notifications/tools/list_changed", () => heard.toolsChanged());
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  get era(): "modern" | "legacy" {
    return this.#client.getProtocolEra() === "modern" ? "modern" : "legacy";
  }

  /** Calls carry headers that mirror what is in them. */
  get hasHeaders(): boolean {
    return this.era === "modern" && this.#inner instanceof StreamableHTTPClientTransport;
  }

  /** Who the server says that it is; of what it says no more than a line. */
  get server(): { readonly name: string; readonly version: string } | undefined {
    const said = this.#client.getServerVersion();
    return said && { name: lineOf(said.name), version: lineOf(said.version) };
  }

  get protocolVersion(): string | undefined {
    return this.#client.getNegotiatedProtocolVersion();
  }

  /** C1. Rejects with a `Trouble`, or with the signal's reason. */
  static async open(where: Where, heard: Heard, signal: AbortSignal, timeoutMs: number): Promise<Connection> {
    if (where.type === "command") return openChild(where, heard, signal, timeoutMs);
    const { url, fetch } = where;
    const sse = () => Connection.over(new SSEClientTransport(url, { fetch }), { mode: "legacy" }, heard, signal, timeoutMs);
    if (where.isSse === true)
      return await sse().catch((error: unknown) => {
        throw troubleOf(error, signal, false);
      });
    const http = () => new StreamableHTTPClientTransport(url, { fetch, reconnectionOptions: RESUME });
    try {
      return await Connection.over(http(), { mode: "auto" }, heard, signal, timeoutMs);
    } catch (error) {
      const status = statusOf(error);
      const mayBeOld = status !== null && status >= 400 && status < 500 && status !== 401 && status !== 403;
      if (!mayBeOld || signal.aborted) throw troubleOf(error, signal, false);
      try {
        return await sse();
      } catch {
        // It is no old one either: what the newer one was told says more.
        throw troubleOf(error, signal, false);
      }
    }
  }

  static async over(
    inner: Transport,
    versionNegotiation: { readonly mode: "auto" | "legacy" | { readonly pin: string } },
    heard: Heard,
    signal: AbortSignal,
    timeoutMs: number,
  ): Promise<Connection> {
    const client = new Client(NAME, { capabilities: {}, versionNegotiation, inputRequired: { autoFulfill: false } }); // C4
    client.onerror = (error) => heard.trouble(error);
    const wire = new WatchedTransport(inner);
    try {
      await within(client.connect(wire, { signal, timeout: timeoutMs }), signal);
      const connection = new Connection(client, wire, inner, heard);
      // A modern server tells of changes only on a stream that was asked for; it stays open longer than connecting may take.
      if (connection.era === "modern" && client.getServerCapabilities()?.tools?.listChanged === true)
        client.listen({ toolsListChanged: true }, { timeout: timeoutMs }).catch((error: unknown) => heard.trouble(errorOf(error)));
      return connection;
    } catch (error) {
      await inner.close().catch(() => {});
      throw error;
    }
  }

  /** The result as the server gave it. Rejects with a `Trouble`, a `ProtocolError` (the server said no) or the signal's reason. */
  async request(method: "tools/list" | "tools/call", params: Record<string, unknown>, options: RequestOptions): Promise<unknown> {
    const { signal, timeoutMs, onProgress, headers } = options;
    const hadSession = this.#wire.sessionId !== undefined;
    try {
      const result = await this.#client.request({ method, params }, Result, {
        signal,
        timeout: timeoutMs,
        ...(onProgress ? { onprogress: () => onProgress() } : {}),
        ...(headers ? { headers: { ...headers } } : {}),
      });
      return this.#wire.takeRaw(result);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (error instanceof ProtocolError && error.code !== CLOSED) throw error;
      const trouble = troubleOf(error, signal, hadSession);
      // What the vault proxy refused never came to the server: the session there is what it was.
      const isGone = statusOf(error) === null && (refusedIn(error) === null || trouble.mayHaveRun);
      if (trouble.isForgotten || isGone) this.drop();
      throw trouble;
    }
  }

  /** Nothing more is sent over it. */
  drop(): void {
    void this.close();
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    if (this.#inner instanceof StreamableHTTPClientTransport)
      await within(this.#inner.terminateSession(), AbortSignal.timeout(CLOSE_MS)).catch(() => {});
    await this.#client.close().catch(() => {});
    await this.#inner.close().catch(() => {});
  }
}

async function openChild(where: Extract<Where, { type: "command" }>, heard: Heard, signal: AbortSignal, timeoutMs: number): Promise<Connection> {
  const attempt = async (mode: "legacy" | { readonly pin: string }): Promise<Connection> => {
    const transport = new StdioTransport(where.start(), (line) => heard.stray(line));
    try {
      return await Connection.over(transport, { mode }, heard, signal, timeoutMs);
    } catch (error) {
      if (error instanceof ProtocolError && error.code !== CLOSED) throw error;
      const said = transport.stderr.trim().split("\n").at(-1)?.slice(-REASON_CHARS_MAX) ?? "";
      heard.stray(said);
      throw transport.end === null ? error : new Trouble(transport.end, { cause: error });
    }
  };
  try {
    return await attempt("legacy");
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw troubleOf(error, signal, false);
    return await attempt({ pin: MODERN }).catch((other: unknown) => {
      throw troubleOf(other, signal, false);
    });
  }
}

const lineOf = (text: string): string => text.toWellFormed().slice(0, SERVER_CHARS_MAX);

const errorOf = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));

async function within<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  let stop = () => {};
  const late = new Promise<never>((_, reject) => {
    stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    signal.removeEventListener("abort", stop);
    work.catch(() => {});
  }
}

/** The HTTP status that an error stands for, wherever it is wrapped. */
export function statusOf(error: unknown): number | null {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth += 1) {
    if (at instanceof SdkHttpError) return at.status;
    if ("code" in at && typeof at.code === "number" && at.code >= 400 && at.code < 600) return at.code;
  }
  return null;
}

/** What went wrong, in words without anything that the server said beyond a status. C2 C3 */
export function troubleOf(error: unknown, signal: AbortSignal, hadSession: boolean): Trouble {
  if (error instanceof Trouble) return error;
  if (signal.aborted) return new Trouble(signal.reason instanceof Error ? signal.reason.message : "it took too long", { cause: error });
  const refused = refusedIn(error);
  if (refused !== null) return new Trouble(refused.message, { kind: refused.kind, mayHaveRun: refused.mayHaveRun, cause: error });
  const status = statusOf(error);
  if (error instanceof UnauthorizedError || status === 401 || status === 403)
    return new Trouble(`it refused the credentials it was given, or wants some (${status ?? 401})`, { kind: "authentication", cause: error });
  if (status !== null) {
    // A server that lost its sessions says 404; some say 400 and name the session.
    const isForgotten = hadSession && (status === 404 || (status === 400 && error instanceof SdkHttpError && /session/i.test(error.message)));
    return new Trouble(`it answered with status ${status}`, { mayHaveRun: status >= 500, isForgotten, cause: error });
  }
  const { code, says, isOurs } = rootOf(error);
  const isUnsent = code === "ECONNREFUSED" || code === "ENOTFOUND" || code === "EAI_AGAIN" || code === "UND_ERR_CONNECT_TIMEOUT" || isOurs;
  return new Trouble(says ?? (code === null ? wordsOf(error) : `no connection (${code})`), { mayHaveRun: !isUnsent, cause: error });
}

/** The vault proxy's own "no", wherever it is wrapped. */
function refusedIn(error: unknown): VaultRefused | null {
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth += 1) if (at instanceof VaultRefused) return at;
  return null;
}

const wordsOf = (error: unknown): string =>
  error instanceof ProtocolError
    ? error.message.slice(0, REASON_CHARS_MAX)
    : `no connection (${error instanceof Error ? error.message.slice(0, REASON_CHARS_MAX) : "unknown"})`;

/** The system's own code for it, and what our own guards say; `isOurs`: nothing was sent. */
function rootOf(error: unknown): { readonly code: string | null; readonly says: string | null; readonly isOurs: boolean } {
  let code: string | null = null;
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth += 1) {
    if (at instanceof Unreachable) return { code, says: at.message, isOurs: true };
    if (at instanceof TooMuch) return { code, says: at.message, isOurs: false };
    if ("code" in at && typeof at.code === "string" && /^(E[A-Z]+|UND_ERR_[A-Z_]+)$/.test(at.code)) code = at.code;
  }
  return { code, says: null, isOurs: false };
}
