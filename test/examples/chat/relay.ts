// A conversation as server-sent events to one browser.
//
//   E1  A frame carries the event's id if the event has its place in the log: with `Last-Event-ID` a browser goes on right after it.
//   E2  A browser that doesn't read is waited for, at most SLOW_MS; then it is cut off, and comes back by itself.

import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import type { Item, Live } from "./items.ts";

const KEEP_ALIVE_MS = 15_000;
const SLOW_MS = 30_000;
/** How long a browser waits until it comes back. */
const RETRY_MS = 1_000;

/** What the page is told beside the items: which conversation this is (not by the session's id), that there is none, or none any more. */
type Notice = { readonly type: "conversation"; readonly id: string } | { readonly type: "none" } | { readonly type: "gone" };

export function openRelay(response: ServerResponse, sessionId: string | null): void {
  response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store, no-transform", "x-accel-buffering": "no" });
  response.write(`retry: ${RETRY_MS}\n\n`);
  if (sessionId !== null) response.write(frame({ type: "conversation", id: createHash("sha256").update(sessionId).digest("base64url") }));
}

export async function relay(response: ServerResponse, items: AsyncIterable<Item | Live>): Promise<void> {
  const keepAlive = setInterval(() => response.write(": here\n\n"), KEEP_ALIVE_MS);
  try {
    for await (const item of items) {
      if (!response.write(frame(item))) await drained(response);
      if (response.destroyed) return;
    }
  } finally {
    clearInterval(keepAlive);
  }
}

export function endRelay(response: ServerResponse, notice: Notice | null): void {
  response.end(notice === null ? "" : frame(notice));
}

/** E1 */
function frame(item: Item | Live | Notice): string {
  const isPlaced = "id" in item && item.type !== "delta" && item.type !== "conversation" && !(item.type === "user" && item.isWaiting);
  return `${isPlaced ? `id: ${item.id}\n` : ""}data: ${JSON.stringify(item)}\n\n`;
}

/** E2 */
function drained(response: ServerResponse): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      response.off("drain", done).off("close", done);
      resolve();
    };
    const timer = setTimeout(() => {
      response.destroy();
      done();
    }, SLOW_MS);
    response.once("drain", done).once("close", done);
  });
}
