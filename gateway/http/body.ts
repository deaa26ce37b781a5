// Request bodies: read whole, up to a limit, as JSON.
//
//   R1  A body over BODY_BYTES_MAX is 413; it is drained for a while first, so that the answer reaches the sender.
//   R2  All bodies in flight together are bounded by BODIES_BYTES_MAX; beyond it the next one is asked to come back.
//   R3  What can't be read as JSON in UTF-8 is 400. Nesting is bounded, so that nothing later can overflow the stack.
//   R4  Half a character (a lone surrogate, which JSON's escapes can spell) is 400: stored, it would come back in answers that others can't read.

import type { IncomingMessage, ServerResponse } from "node:http";
import { Refusal } from "../../session-store/refusal.ts";
import { invalid } from "../answer.ts";

const BODY_BYTES_MAX = 32 * 1024 * 1024;
const BODIES_BYTES_MAX = 16 * BODY_BYTES_MAX;
const DRAIN_BYTES_MAX = 256 * 1024 * 1024;
const DRAIN_MS = 10_000;
const DEPTH_MAX = 64;

/** The bodies of all requests of this process. */
export class Bodies {
  #held = 0;

  /** The body's bytes; an absent body is empty. They count until the response is done with. R1 R2 */
  async read(request: IncomingMessage, response: ServerResponse): Promise<Buffer> {
    const encoding = request.headers["content-encoding"];
    if (encoding !== undefined && encoding !== "identity") throw invalid("content-encoding: is not supported");
    let held = 0;
    const hold = (bytes: number) => {
      held += bytes;
      this.#held += bytes;
      return this.#held <= BODIES_BYTES_MAX;
    };
    response.once("close", () => {
      this.#held -= held;
    });
    return readAll(request, hold);
  }
}

/** `hold` is told of each chunk that is kept; false: there is no room for it. */
function readAll(request: IncomingMessage, hold: (bytes: number) => boolean): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    let chunks: Buffer[] = [];
    let bytes = 0;
    let timer: NodeJS.Timeout | undefined;
    const settle = (act: () => void) => {
      clearTimeout(timer);
      request.off("data", onData).off("end", onEnd).off("error", onLost).off("close", onLost);
      act();
    };
    const refuse = () => settle(() => reject(new Refusal("too_large", `The request body is over the limit of ${BODY_BYTES_MAX} bytes.`)));
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > BODY_BYTES_MAX) {
        chunks = [];
        timer ??= setTimeout(refuse, DRAIN_MS);
        if (bytes > DRAIN_BYTES_MAX) refuse();
      } else if (hold(chunk.length)) chunks.push(chunk);
      else settle(() => reject(new Refusal("store_busy", "This node has no room for the request body now.")));
    };
    const onEnd = () =>
      bytes > BODY_BYTES_MAX ? refuse() : settle(() => resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks)));
    const onLost = () => settle(() => reject(invalid("body: the connection ended before the body did")));
    request.on("data", onData).on("end", onEnd).on("error", onLost).on("close", onLost);
  });
}

/** The body as JSON. R3 R4 */
export function parseJson(bytes: Buffer): unknown {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    // The parser's own words quote the body, which may hold a secret.
    throw invalid("body: The request body is not valid JSON");
  }
  refuseOdd(value);
  return value;
}

/** Too deep, with a name that JavaScript treats apart, or with half a character. */
function refuseOdd(root: unknown): void {
  const left: [value: unknown, depth: number][] = [[root, 0]];
  for (let next = left.pop(); next; next = left.pop()) {
    const [value, depth] = next;
    if (typeof value === "string" && !value.isWellFormed()) throw halved();
    if (typeof value !== "object" || value === null) continue;
    if (depth >= DEPTH_MAX) throw invalid(`body: nested deeper than ${DEPTH_MAX} levels`);
    if (Object.hasOwn(value, "__proto__")) throw invalid("__proto__: Extra inputs are not permitted");
    if (!Array.isArray(value) && Object.keys(value).some((name) => !name.isWellFormed())) throw halved();
    for (const inner of Array.isArray(value) ? value : Object.values(value)) left.push([inner, depth + 1]);
  }
}

const halved = () => invalid("body: The request body is not valid JSON: a string holds half of a surrogate pair");
