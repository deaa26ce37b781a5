// Taking up a session: from the message that makes it due to the harness that thinks for it. From nothing, as by a worker that never saw it; and
// warm, as by the worker that drove it last.

import type { Logger } from "pino";
import { makeHands } from "../../hands/client.ts";
import type { Harness } from "../../harnesses/harness.ts";
import { WarmViews } from "../../harnesses/warm-views.ts";
import { startWorker } from "../../harnesses/worker.ts";
import { mintEvent, type SessionId } from "../../session-store/ids.ts";
import { openStore } from "../../session-store/open.ts";
import { statusOf } from "../../session-store/session.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { until } from "../support/until.ts";
import { kilobyte, leased } from "./append.ts";
import type { Figure } from "./figures.ts";
import { median, times } from "./figures.ts";

const ENTRIES = 10_000;
const AT_ONCE = 100;
const TURN_MS = 60_000;
const DRAIN_MS = 5_000;
const USAGE = { input_tokens: 1, output_tokens: 1, cache_read_input_tokens: 0, cache_creation_input_tokens: 0 };

export interface TakingFigures {
  readonly figures: readonly Figure[];
  /** What a worker keeps of the long session, in bytes as it counts them. */
  readonly keptBytes: number;
}

export async function measureTaking(name: string, place: { redisUrl?: string; dataDir: string }, n: number, log: Logger): Promise<TakingFigures> {
  const store = await openStore({ ...place, leaseMs: 600_000, log });
  try {
    const short = await grown(store, 0);
    const few = await takes(store, short, n, { views: new WarmViews({ viewBytesMax: 0 }), log });
    const long = await grown(store, ENTRIES);
    const cold = await takes(store, long, n, { views: new WarmViews({ viewBytesMax: 0 }), log });
    const warm = await takes(store, long, n, { views: new WarmViews(), log });
    const baseline = { name: "a log of a few entries", ms: median(few.ms) };
    const entries = ENTRIES.toLocaleString("en");
    return {
      figures: [
        { name: `${name}, a log of a few entries`, ms: few.ms },
        { name: `${name}, ${entries} entries, from nothing`, ms: cold.ms, baseline },
        { name: `${name}, ${entries} entries, warm`, ms: warm.ms, baseline },
      ],
      keptBytes: warm.keptBytes,
    };
  } finally {
    await store.close();
  }
}

/** A session with so many entries of 1 KB, which is due. */
async function grown(store: SessionStore, entries: number): Promise<SessionId> {
  const lease = await leased(store);
  let n = 0;
  for (let written = 0; written < entries; written += AT_ONCE) await store.emitEvents(lease, ++n, Array.from({ length: AT_ONCE }, kilobyte));
  await store.release(lease, n + 1, [], 0);
  return lease.id;
}

/** Turn after turn of one session, by a worker with these views; its first take is not counted. */
async function takes(
  store: SessionStore,
  id: SessionId,
  n: number,
  { views, log }: { views: WarmViews; log: Logger },
): Promise<{ ms: readonly number[]; keptBytes: number }> {
  let thinking = () => {};
  const worker = await startWorker({
    store,
    // No hand is touched by a turn without tools.
    hands: makeHands({ resolve: () => Promise.reject(new Error("no hand")), local: { url: "http://127.0.0.1:9" }, handKey: "none", log }),
    mintGrant: () => ({ text: Promise.resolve("none"), lifeMs: 600_000 }),
    vaultUrl: "http://127.0.0.1:9",
    harness: answering(() => thinking()),
    log,
    views,
  });
  const isIdle = () => until(async () => statusOf(await store.getSession(id)) === "idle", { timeoutMs: TURN_MS, what: "the session to be idle" });
  try {
    await isIdle();
    const ms = await times(
      n,
      async () => {
        const started = performance.now();
        const thought = new Promise<number>((resolve) => {
          thinking = () => resolve(performance.now() - started);
        });
        await store.receive(id, [
          { type: "log.received", event: { id: mintEvent(), type: "user.message", content: [{ type: "text", text: "hi" }] }, waits: true },
        ]);
        const took = await thought;
        await isIdle();
        return took;
      },
      1,
    );
    return { ms, keptBytes: views.bytes };
  } finally {
    await worker.drain(DRAIN_MS);
  }
}

/** Says one word, without a model. */
function answering(thinks: () => void): Harness {
  return {
    name: "bench",
    async run(session) {
      thinks();
      const span = await session.begin();
      await session.respond(span, { model: "none", stop_reason: "end_turn", content: [{ type: "text", text: "ok" }], truncated: [], usage: USAGE });
      return { type: "end_turn" };
    },
  };
}
