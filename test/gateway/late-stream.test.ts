// An answer that is a stream itself and comes late: who reads it slowly slows it down.

import { pino } from "pino";
import { expect, test } from "vitest";
import { lateStream } from "../../gateway/mcp/late-stream.ts";

const PIECES = 100;
const log = pino({ level: "silent" });
const late = { keepAliveMs: 60_000, body: {}, left: new AbortController().signal, log };

/** A stream of pieces, made one by one as they are asked for. */
function counted(): { readonly made: () => number; readonly answering: Promise<Response> } {
  let made = 0;
  const stream = new ReadableStream<Uint8Array>({
    pull(controller) {
      made += 1;
      controller.enqueue(Buffer.from(`data: ${made}\n\n`));
      if (made === PIECES) controller.close();
    },
  });
  const answer = new Response(stream, { headers: { "content-type": "text/event-stream" } });
  // Longer than an answer may take without a stream.
  return { made: () => made, answering: new Promise((resolve) => setTimeout(() => resolve(answer), 1_200)) };
}

test("a stream is read as fast as its client takes it, and comes whole", async () => {
  const { made, answering } = counted();
  const reader = (await lateStream(answering, late)).body?.getReader();
  if (!reader) throw new Error("no body");
  const read = async () => Buffer.from((await reader.read()).value ?? []).toString();
  expect([await read(), await read()]).toEqual([": open\n\n", "data: 1\n\n"]);
  await answering;
  // All that nobody keeps from being done is done.
  await new Promise((resolve) => setImmediate(resolve));
  expect(made()).toBeLessThan(6);
  let text = "";
  for (let piece = await read(); piece !== ""; piece = await read()) text += piece;
  expect(text).toBe(Array.from({ length: PIECES - 1 }, (_, at) => `data: ${at + 2}\n\n`).join(""));
});

test("a client that goes away in the middle of a stream ends it", async () => {
  let isEnded = false;
  const stream = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.enqueue(Buffer.from("data: x\n\n")),
    cancel() {
      isEnded = true;
    },
  });
  const answer = new Response(stream, { headers: { "content-type": "text/event-stream" } });
  const answering = new Promise<Response>((resolve) => setTimeout(() => resolve(answer), 1_200));
  const reader = (await lateStream(answering, late)).body?.getReader();
  for (let at = 0; at < 3; at += 1) await reader?.read();
  await reader?.cancel();
  expect(isEnded).toBe(true);
});
