// A real handshake with a server that is or is to be registered: a hand of a session that nobody has is provisioned, asked for its tools, and
// given back.
//
//   P1  It is the server's own connection, also where the hand is shared: looking at a server disturbs nobody who uses it.
//   P2  Nothing of it is left: it is given back at once, and what a dead gateway could not give back goes as every hand whose session is gone.
//   P3  What came of it is a value; only a bug is thrown.

import type { Logger } from "pino";
import type { HandRef, Hands, ServerTool, ServerWanted } from "../../hands/hand.ts";
import { mintProbe, type RegisteredHand } from "../../hands/registry.ts";
import type { Fence } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";

/** Until the server answers, where its registration says nothing. */
const CONNECT_MS = 20_000;
const CONNECT_MS_MAX = 55_000;
/** For the hand host, beside the server's own time. */
const HOST_MS = 5_000;
const RELEASE_MS = 5_000;

export type Probe =
  | {
      readonly type: "ready";
      readonly tools: readonly ServerTool[];
      readonly server: { readonly name: string; readonly version: string } | null;
      readonly protocolVersion: string | null;
    }
  | { readonly type: "failed"; readonly says: string };

/** P1 P2 P3 */
export async function probe(
  hands: Hands | null,
  record: Pick<RegisteredHand, "name" | "transport" | "timeouts">,
  { log, grant }: { readonly log: Logger; readonly grant: string | undefined },
): Promise<Probe> {
  if (hands === null) return { type: "failed", says: "this installation has no hand host" };
  const connectMs = Math.min(record.timeouts.connect_ms ?? CONNECT_MS, CONNECT_MS_MAX);
  const holder = { session: mintProbe(), fence: 1 as Fence };
  const signal = AbortSignal.timeout(connectMs + HOST_MS);
  let hand: HandRef | null = null;
  try {
    hand = await hands.provision(holder, { server: wantedOf(record, connectMs) }, signal);
    const told = await hands.listTools(holder, hand, { known: null, waitMs: connectMs + HOST_MS / 2, isFresh: true, grant }, signal);
    if (told.type === "failed") return { type: "failed", says: told.message };
    if (told.type !== "ready") return { type: "failed", says: `it did not answer within ${connectMs} ms` };
    return { type: "ready", tools: told.tools, server: told.server ?? null, protocolVersion: told.protocolVersion ?? null };
  } catch (error) {
    if (signal.aborted) return { type: "failed", says: `it did not answer within ${connectMs} ms` };
    if (!(error instanceof Refusal)) throw error;
    log.warn({ hand: record.name, code: error.code, detail: error.detail }, "hand.not_probed");
    return { type: "failed", says: error.code === "hand_lost" ? "no hand host can be reached" : error.message };
  } finally {
    if (hand !== null)
      await hands.release(holder.session, hand.host, AbortSignal.timeout(RELEASE_MS)).catch((error: unknown) => {
        log.warn({ hand: record.name, err: error }, "hand.not_released");
      });
  }
}

function wantedOf({ name, transport }: Pick<RegisteredHand, "name" | "transport">, connectMs: number): ServerWanted {
  const times = { connectMs };
  if (transport.type === "stdio") return { name, transport: { type: "configured", server: transport.server }, times };
  return { name, transport: { type: "url", url: transport.url, isSse: transport.type === "sse" }, times };
}
