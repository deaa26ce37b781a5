// Amazon's event stream (`application/vnd.amazon.eventstream`) as server-sent events of the Messages API.
//
// A frame: total length (4 bytes), length of its headers (4), checksum of these eight (4), headers, payload, checksum of all before (4). A header: length of its
// name (1), name, type (1; 7 is a string), length (2), value. A chunk's payload is `{"bytes": "<base64 of one event of the Messages API>"}`.

import { crc32 } from "node:zlib";
import { z } from "zod";

const FRAME_BYTES_MAX = 24 * 1024 * 1024;
const PRELUDE_BYTES = 12;
const CHECKSUM_BYTES = 4;
const STRING = 7;
const NOTHING = Buffer.alloc(0);

const Chunk = z.object({ bytes: z.string() });
const Event = z.looseObject({ type: z.string().regex(/^[a-z_]+$/) });
const Problem = z.object({ message: z.string() });

/** The platform's stream is not what it says. */
class BrokenFrames extends Error {
  override readonly name = "BrokenFrames";
}

/** Feed it the bytes as they come; it gives the text of the events that are whole. */
export class EventFrames {
  #held: Buffer = NOTHING;

  push(piece: Buffer): Buffer {
    let rest = this.#held.length === 0 ? piece : Buffer.concat([this.#held, piece]);
    const out: string[] = [];
    while (rest.length >= PRELUDE_BYTES) {
      const total = rest.readUInt32BE(0);
      if (crcOf(rest, 0, 8) !== rest.readUInt32BE(8)) throw new BrokenFrames("a prelude's checksum is wrong");
      if (total > FRAME_BYTES_MAX || total < PRELUDE_BYTES + CHECKSUM_BYTES) throw new BrokenFrames("a frame's length is wrong");
      if (rest.length < total) break;
      out.push(eventOf(rest.subarray(0, total)));
      rest = rest.subarray(total);
    }
    this.#held = rest.length === 0 ? NOTHING : Buffer.from(rest);
    return Buffer.from(out.join(""));
  }

  /** Throws if a frame was left unfinished. */
  end(): void {
    if (this.#held.length > 0) throw new BrokenFrames("the stream ended in a frame");
  }
}

function eventOf(frame: Buffer): string {
  const end = frame.length - CHECKSUM_BYTES;
  if (crcOf(frame, 0, end) !== frame.readUInt32BE(end)) throw new BrokenFrames("a frame's checksum is wrong");
  const headersTo = PRELUDE_BYTES + frame.readUInt32BE(4);
  if (headersTo > end) throw new BrokenFrames("a frame's headers are longer than the frame");
  const headers = headersOf(frame.subarray(PRELUDE_BYTES, headersTo));
  const payload = jsonOf(frame.subarray(headersTo, end));
  if (headers.get(":message-type") === "event") {
    if (headers.get(":event-type") !== "chunk") return "";
    const chunk = Chunk.safeParse(payload);
    const bytes = chunk.success ? Buffer.from(chunk.data.bytes, "base64") : NOTHING;
    const event = Event.safeParse(jsonOf(bytes));
    if (!event.success) throw new BrokenFrames("a chunk holds no event");
    // The event's own bytes, on one line as they are: they are JSON without line breaks.
    return `event: ${event.data.type}\ndata: ${bytes.toString("utf8").replaceAll(/[\r\n]/g, " ")}\n\n`;
  }
  const kind = headers.get(":exception-type") ?? headers.get(":error-code") ?? "exception";
  const said = Problem.safeParse(payload);
  const error = { type: kind === "throttlingException" ? "rate_limit_error" : "api_error", message: said.success ? said.data.message : kind };
  return `event: error\ndata: ${JSON.stringify({ type: "error", error })}\n\n`;
}

function headersOf(bytes: Buffer): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  let at = 0;
  while (at < bytes.length) {
    const nameTo = at + 1 + (bytes[at] ?? 0);
    const valueFrom = nameTo + 3;
    if (bytes[nameTo] !== STRING || valueFrom > bytes.length) throw new BrokenFrames("a header is not a string");
    const valueTo = valueFrom + bytes.readUInt16BE(nameTo + 1);
    if (valueTo > bytes.length) throw new BrokenFrames("a header is longer than the headers");
    found.set(bytes.toString("utf8", at + 1, nameTo), bytes.toString("utf8", valueFrom, valueTo));
    at = valueTo;
  }
  return found;
}

function jsonOf(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    return undefined;
  }
}

const crcOf = (bytes: Buffer, from: number, to: number): number => crc32(bytes.subarray(from, to));
