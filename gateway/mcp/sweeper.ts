// What nobody needs any more goes away: sessions that were not used for long, answers that were not fetched, questions and states past their time.
//
//   V1  A round goes through what is old enough, oldest first, page by page, and stops after PAGES_MAX of a kind; of sessions it takes one page, and the
//       next round goes on. What has to stay keeps nothing that comes after it. Two nodes that sweep at once do no harm.

import type { Logger } from "pino";
import type { Document } from "../../session-store/documents.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { ANSWER_MS, ASK_KIND } from "./handshake/asks.ts";
import type { HandshakeSessions } from "./handshake/sessions.ts";
import { readStream, removeStream, STREAM_KIND } from "./handshake/stream-log.ts";
import { WORKSPACE } from "./kept.ts";
import { STATE_KIND, STATE_LIFE_MS } from "./seal.ts";

const EVERY_MS = 60_000;
const PAGE = 100;
const PAGES_MAX = 100;
/** For a client to come back for its answer. */
const STREAM_KEPT_MS = 600_000;

export function sweepEvery(store: SessionStore, sessions: HandshakeSessions, log: Logger): () => void {
  let place: Parameters<HandshakeSessions["sweep"]>[0] = null;
  let isSweeping = false;
  const round = async (): Promise<void> => {
    if (isSweeping) return;
    isSweeping = true;
    try {
      place = await sessions.sweep(place, PAGE);
      await sweep(store, Date.now());
    } catch (error) {
      log.warn({ reason: error instanceof Error ? error.message.slice(0, 200) : "unknown" }, "mcp.not_swept");
    } finally {
      isSweeping = false;
    }
  };
  const timer = setInterval(() => void round(), EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** V1 */
export async function sweep(store: SessionStore, now: number): Promise<void> {
  const discard = async (kind: string, id: string): Promise<void> => {
    try {
      await store.discard(WORKSPACE, kind, id);
    } catch (error) {
      if (!(error instanceof Refusal && error.code === "document_not_found")) throw error;
    }
  };
  const each = async (kind: string, lifeMs: number, visit: (id: string) => Promise<void>): Promise<void> => {
    let last: Document | undefined;
    for (let pages = 0; pages < PAGES_MAX; pages += 1) {
      const beyond = last && { createdAt: last.createdAt, id: last.id };
      const page = await store.list(WORKSPACE, kind, { order: "asc", limit: PAGE, createdAt: { lt: now - lifeMs }, ...(beyond && { beyond }) });
      for (const { id } of page) await visit(id);
      last = page.at(-1);
      if (page.length < PAGE) return;
    }
  };
  await each(ASK_KIND, ANSWER_MS * 2, (id) => discard(ASK_KIND, id));
  await each(STATE_KIND, STATE_LIFE_MS * 2, (id) => discard(STATE_KIND, id));
  await each(STREAM_KIND, STREAM_KEPT_MS, async (id) => {
    // One that still runs, or ended a short while ago, stays.
    const stored = await readStream(store, id);
    if (!stored || stored.until + STREAM_KEPT_MS < now) await removeStream(store, id, discard);
  });
}
