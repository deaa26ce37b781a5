// Where hand hosts are: this node's own is announced in the store, so that every worker reaches the hands that a session is bound to.
//
//   R1  A host's id, address and boot number are one document (workspace "manyhands", kind "hand_host"), written when they change.
//   R2  A hand whose session is gone is released: looked for at the start and every REAP_MS.
//   R3  A probe's session is nowhere, and its hand is left alone for as long as a probe may take.
//   R4  While the own hand host or the store can't be reached this goes on trying, and says so.

import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { errors, request } from "undici";
import { z } from "zod";
import type { SessionId } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { SessionStore } from "../session-store/store.ts";
import type { Hands } from "./hand.ts";
import { isProbe } from "./registry.ts";

const WORKSPACE = "manyhands";
const KIND = "hand_host";
const CHECK_MS = 5_000;
const RETRY_MS = 250;
const REAP_MS = 30_000;
const ANSWER_MS = 3_000;
const PROBE_MS = 120_000;

const Identity = z.object({ id: z.string().min(1), boot: z.number().int() });
const Announced = z.object({ url: z.string(), boot: z.number().int() });

export type HandHostPlace = z.infer<typeof Announced>;

export interface HandHostsOptions {
  readonly store: Pick<SessionStore, "get" | "put" | "getSession">;
  /** This node's own hand host. */
  readonly url: string;
  readonly log: Logger;
}

export class HandHosts {
  readonly #options: HandHostsOptions;
  readonly #end = new AbortController();
  #own: z.infer<typeof Identity> | null = null;
  #kept: Promise<void> = Promise.resolve();
  /** Probes that were seen, and when first. R3 */
  #probes = new Map<SessionId, number>();

  constructor(options: HandHostsOptions) {
    this.#options = options;
  }

  /** Where a hand host is; refuses (`hand_lost`) when nobody knows of it. */
  async resolve(hostId: string): Promise<HandHostPlace> {
    const { store, url } = this.#options;
    if (this.#own?.id !== hostId) {
      const found = Announced.safeParse((await store.get(WORKSPACE, KIND, hostId))?.body);
      if (found.success) return found.data;
      // The own one may be younger than its announcement.
      await this.#announce().catch(passing);
    }
    if (this.#own?.id === hostId) return { url, boot: this.#own.boot };
    throw new Refusal("hand_lost", undefined, { detail: `no hand host is known by the id ${hostId}` });
  }

  /** Announces this node's hand host for as long as it lives, and releases what nobody owns. R1 R2 R4 */
  start(hands: Pick<Hands, "instances" | "release">): void {
    this.#kept = this.#keep(hands);
  }

  async stop(): Promise<void> {
    this.#end.abort();
    await this.#kept;
  }

  async #keep(hands: Pick<Hands, "instances" | "release">): Promise<void> {
    const { log, url } = this.#options;
    const { signal } = this.#end;
    let reapedAt = Number.NEGATIVE_INFINITY;
    let isLost = false;
    while (!signal.aborted) {
      try {
        const { id } = await this.#announce();
        if (performance.now() - reapedAt >= REAP_MS) {
          await this.#reap(hands, id);
          reapedAt = performance.now();
        }
        isLost = false;
      } catch (error) {
        if (signal.aborted) return;
        const reason = passing(error);
        if (!isLost) log.warn({ url, reason }, "hand_host.unreachable");
        isLost = true;
      }
      // Called off while it waits: the loop's condition ends it.
      await sleep(isLost ? RETRY_MS : CHECK_MS, undefined, { signal }).catch(() => {});
    }
  }

  /** R1 */
  async #announce(): Promise<z.infer<typeof Identity>> {
    const { store, url, log } = this.#options;
    const answer = await request(`${url}/healthz`, { headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS, signal: this.#end.signal });
    const own = Identity.parse(await answer.body.json());
    if (own.id === this.#own?.id && own.boot === this.#own.boot) return own;
    const known = await store.get(WORKSPACE, KIND, own.id);
    await store.put(WORKSPACE, [{ kind: KIND, id: own.id, body: { url, boot: own.boot } satisfies HandHostPlace, replaces: known?.revision ?? 0 }]);
    this.#own = own;
    log.info({ host: own.id, boot: own.boot, url }, "hand_host.announced");
    return own;
  }

  /** R2 R3 */
  async #reap(hands: Pick<Hands, "instances" | "release">, host: string): Promise<void> {
    const { store, log } = this.#options;
    const { signal } = this.#end;
    const instances = await hands.instances(host, signal);
    const now = performance.now();
    this.#probes = new Map(instances.filter(({ session }) => isProbe(session)).map(({ session }) => [session, this.#probes.get(session) ?? now]));
    for (const { hand, session } of instances) {
      if (now - (this.#probes.get(session) ?? Number.NEGATIVE_INFINITY) < PROBE_MS) continue;
      try {
        await store.getSession(session);
      } catch (error) {
        if (!(error instanceof Refusal) || error.code !== "session_not_found") throw error;
        await hands.release(session, host, signal);
        log.info({ sessionId: session, hand, host }, "hand.reaped");
      }
    }
  }
}

/** What goes away by itself: the host or the store can't be reached, another worker of this node announced at the same time. */
function passing(error: unknown): string {
  if (error instanceof Refusal) return error.code;
  const code = error instanceof Error && "code" in error ? String(error.code) : null;
  if (error instanceof errors.UndiciError || code?.startsWith("E") || error instanceof SyntaxError || error instanceof z.ZodError)
    return code ?? "no answer";
  throw error;
}
