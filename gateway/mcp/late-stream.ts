// An answer that does not come soon, as a stream: whatever stands between cuts a connection on which nothing passes, and in the stateless era that calls
// the request off.
//
//   A1  An answer that comes within STREAM_AFTER_MS goes out as it is. After that a stream is begun, kept open by comments, and the answer comes in it.
//   A2  A client that goes away ends the request by its own signal; what is left of the answer is let go.
//   A3  An answer that is a stream itself is read as fast as its client takes it.

import type { Logger } from "pino";
import { errorMessage, INTERNAL_ERROR, idIn } from "./rpc.ts";
import { OPENING, PING, STREAM_HEADERS } from "./sse.ts";

const STREAM_AFTER_MS = 1_000;

interface Late {
  readonly keepAliveMs: number;
  /** What was asked. */
  readonly body: unknown;
  /** The client went away. */
  readonly left: AbortSignal;
  readonly log: Logger;
}

/** A1 */
export async function lateStream(answering: Promise<Response>, late: Late): Promise<Response> {
  let timer: NodeJS.Timeout | undefined;
  const patience = new Promise<null>((resolve) => {
    timer = setTimeout(() => resolve(null), STREAM_AFTER_MS);
  });
  try {
    return (await Promise.race([answering, patience])) ?? begun(answering, late);
  } finally {
    clearTimeout(timer);
  }
}

function begun(answering: Promise<Response>, { keepAliveMs, body, left, log }: Late): Response {
  const encoder = new TextEncoder();
  let alive: NodeJS.Timeout | undefined;
  let isLeft = false;
  let rest: ReadableStreamDefaultReader<Uint8Array> | null = null;
  let wake = () => {};
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(encoder.encode(OPENING));
      alive = setInterval(() => controller.enqueue(encoder.encode(PING)), keepAliveMs);
      const hush = () => clearInterval(alive);
      void answering
        .then(async (answer) => {
          if (isStream(answer) && answer.body) {
            rest = answer.body.getReader();
            if (isLeft) return void (await rest.cancel());
            // From here on it says itself that it is there.
            hush();
            for (let piece = await rest.read(); !piece.done; piece = await rest.read()) {
              controller.enqueue(piece.value);
              // A3
              if ((controller.desiredSize ?? 0) <= 0)
                await new Promise<void>((resolve) => {
                  wake = resolve;
                });
            }
          } else {
            const text = await answer.text();
            hush();
            if (!isLeft && text !== "") controller.enqueue(encoder.encode(`event: message\ndata: ${text}\n\n`));
          }
        })
        .catch((error: unknown) => {
          hush();
          if (isLeft || left.aborted) return;
          log.error({ err: error }, "mcp.broke");
          const says = errorMessage(idIn(body), { code: INTERNAL_ERROR, message: "Internal error" });
          controller.enqueue(encoder.encode(`event: message\ndata: ${JSON.stringify(says)}\n\n`));
        })
        .finally(() => {
          if (!isLeft) controller.close();
        });
    },
    pull: () => wake(),
    // A2
    async cancel() {
      isLeft = true;
      wake();
      clearInterval(alive);
      await rest?.cancel();
    },
  });
  return new Response(stream, { status: 200, headers: STREAM_HEADERS });
}

const isStream = ({ headers }: Response): boolean => headers.get("content-type")?.startsWith("text/event-stream") === true;
