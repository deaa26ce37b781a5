// What a hand of the stateless era says by itself, for a client of the handshake era: its listening stream here, a subscription there.
//
//   L1  One stream a session on a node: the newest. The subscription at the hand is opened anew when the session follows other resources.
//   L2  A subscription that broke is opened again, after a while that grows; then every followed resource is said to be updated once, since
//       something may have been missed. So it is after a client's own break.

import { setTimeout as sleep } from "node:timers/promises";
import { mint } from "../../../session-store/ids.ts";
import { SseResponse } from "../../mcp/sse.ts";
import type { Exchange, RelaySession } from "../upstream.ts";
import { bellOf, type CrossedOptions, reasonOf, SUBSCRIPTION_ID, without } from "./crossed.ts";
import { metaOf, recordOf } from "./incoming.ts";
import { askHand } from "./stateless-hand.ts";

const POLL_MS = 2_000;
const AGAIN_MS = 500;
const AGAIN_MS_MAX = 30_000;
const PRIMED_FROM = "2025-11-25";
const ACKNOWLEDGED = "notifications/subscriptions/acknowledged";
const TOLD = /^notifications\/((tools|prompts|resources)\/list_changed|resources\/updated)$/;

export class Listening {
  readonly #options: CrossedOptions;
  readonly #open = new Map<string, SseResponse>();

  constructor(options: CrossedOptions) {
    this.#options = options;
  }

  /** L1 */
  open(exchange: Exchange, session: RelaySession, isResumed: boolean): void {
    this.#open.get(session.id)?.end();
    const out = new SseResponse(exchange.response, exchange.keepAliveMs);
    this.#open.set(session.id, out);
    const gone = new AbortController();
    out.onClose(() => {
      gone.abort();
      if (this.#open.get(session.id) === out) this.#open.delete(session.id);
    });
    const listener = mint("mcpg");
    let n = 0;
    if (session.version >= PRIMED_FROM) out.prime(`${listener}.0`);
    const tell = async (message: object) => {
      n += 1;
      await out.message(JSON.stringify(message), `${listener}.${n}`);
    };
    void this.#follow(exchange, session, tell, { isResumed, out, signal: gone.signal }).catch((error: unknown) => {
      this.#options.log.error({ err: error }, "mcp.broke");
      out.end();
    });
  }

  close(): void {
    for (const out of this.#open.values()) out.end();
  }

  async #follow(
    exchange: Exchange,
    session: RelaySession,
    tell: (message: object) => Promise<void>,
    { isResumed, out, signal }: { readonly isResumed: boolean; readonly out: SseResponse; readonly signal: AbortSignal },
  ): Promise<void> {
    const { log } = this.#options;
    let isBroken = isResumed;
    let waitMs = AGAIN_MS;
    for (let now: RelaySession | null = session; !signal.aborted; now = await exchange.sessions.peek(session.id)) {
      if (!now) return out.end();
      const { subscriptions } = now;
      if (isBroken) for (const uri of subscriptions) await tell({ jsonrpc: "2.0", method: "notifications/resources/updated", params: { uri } });
      isBroken = false;
      const other = new AbortController();
      const stop = await this.#watch(exchange, now, other, signal);
      try {
        await this.#hear(exchange, now, tell, AbortSignal.any([signal, other.signal]));
        isBroken = !other.signal.aborted;
      } catch (error) {
        isBroken = !other.signal.aborted;
        if (isBroken && !signal.aborted) log.info({ hand: exchange.upstream.hand.name, reason: reasonOf(error) }, "hand.subscription_broke");
      } finally {
        stop();
      }
      waitMs = isBroken ? Math.min(waitMs * 2, AGAIN_MS_MAX) : AGAIN_MS;
      if (isBroken) await sleep(waitMs, undefined, { signal }).catch(() => {});
    }
  }

  async #hear({ upstream }: Exchange, session: RelaySession, tell: (message: object) => Promise<void>, signal: AbortSignal): Promise<void> {
    const hello = recordOf(JSON.parse(session.hello));
    const { subscriptions } = session;
    const notifications = {
      toolsListChanged: true,
      promptsListChanged: true,
      resourcesListChanged: true,
      ...(subscriptions.length > 0 && { resourceSubscriptions: subscriptions }),
    };
    const client = { info: hello.clientInfo, capabilities: recordOf(hello.capabilities) };
    const asking = { upstream, method: "subscriptions/listen", params: { notifications }, client, level: null, signal, isEndless: true };
    let hasNothing = false;
    for await (const { method, params, id } of askHand(asking)) {
      if (method === ACKNOWLEDGED) hasNothing = Object.keys(recordOf(recordOf(params).notifications)).length === 0;
      if (id !== undefined || typeof method !== "string" || !TOLD.test(method)) continue;
      const meta = without(metaOf(params), SUBSCRIPTION_ID);
      const { _meta, ...rest } = recordOf(params);
      await tell({ jsonrpc: "2.0", method, params: { ...rest, ...(Object.keys(meta).length > 0 && { _meta: meta }) } });
    }
    if (!hasNothing) return;
    // A hand that will never tell anything ends at once; it is asked again when the session changes.
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      else signal.addEventListener("abort", () => resolve(), { once: true });
    });
  }

  /** Aborts `other` when the session ended or follows other resources. */
  async #watch({ sessions }: Exchange, session: RelaySession, other: AbortController, signal: AbortSignal): Promise<() => void> {
    const { store, log } = this.#options;
    const look = async () => {
      const now = signal.aborted ? session : await sessions.peek(session.id);
      if (!now || now.subscriptions.join("\n") !== session.subscriptions.join("\n")) other.abort();
    };
    const looked = () => void look().catch((error: unknown) => log.warn({ reason: reasonOf(error) }, "mcp.not_looked"));
    const timer = setInterval(looked, POLL_MS);
    const hush = await store.listen(bellOf(session.id), looked);
    looked();
    return () => {
      clearInterval(timer);
      hush();
    };
  }
}
