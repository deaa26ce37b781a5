// Reading a whole answer of a hand: of its first words, `initialize` and `server/discover`, which are short.

import { SseReader } from "../mcp/sse-reader.ts";
import { failureOf, tooLong } from "./failure.ts";
import { COLLECTED_BYTES_MAX } from "./limits.ts";
import type { UpstreamAnswer } from "./upstream.ts";

export interface WholeAnswer {
  readonly status: number;
  readonly type: "json" | "events" | "other";
  /** As it came; of a stream, up to the end of the event that held the answer. */
  readonly bytes: Buffer;
  /** The message with a result or an error; null: there was none. */
  readonly message: Readonly<Record<string, unknown>> | null;
}

/** Reads until the answer is there. Ends the request to the hand. */
export async function readWhole({ status, headers, body }: UpstreamAnswer): Promise<WholeAnswer> {
  const kind = String(headers["content-type"] ?? "");
  const type = /^application\/json\b/i.test(kind) ? "json" : /^text\/event-stream\b/i.test(kind) ? "events" : "other";
  const chunks: Buffer[] = [];
  let bytes = 0;
  let message: WholeAnswer["message"] = null;
  const reader = new SseReader((data) => {
    message ??= answerIn(data);
  });
  try {
    for await (const chunk of body) {
      const piece = Buffer.from(chunk as Uint8Array);
      chunks.push(piece);
      bytes += piece.length;
      if (bytes > COLLECTED_BYTES_MAX) throw tooLong(COLLECTED_BYTES_MAX);
      if (type !== "events") continue;
      reader.take(piece);
      if (message !== null) break;
    }
  } catch (error) {
    throw failureOf(error);
  } finally {
    body.destroy();
  }
  const all = Buffer.concat(chunks);
  if (type === "json") message = answerIn(all.toString("utf8"));
  return { status, type, bytes: all, message };
}

function answerIn(text: string): WholeAnswer["message"] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // No message at all.
    return null;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  return "result" in value || "error" in value ? { ...value } : null;
}
