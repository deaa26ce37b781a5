// Request bodies: read whole, up to a limit, as JSON.
//
//   R1  A body over BODY_BYTES_MAX is 413; it is drained for a while first, so that the answer reaches the sender.
//   R2  What can't be read as JSON in UTF-8 is 400. Nesting is bounded, so that nothing later can overflow the stack.

import type { IncomingMessage } from "node:http";
import { Refusal } from "../../session-store/refusal.ts";
import { invalid } from "../answer.ts";

export const BODY_BYTES_MAX = 32 * 1024 * 1024;
const DRAIN_BYTES_MAX = 256 * 1024 * 1024;
const DRAIN_MS = 10_000;
const DEPTH_MAX = 64;

/** The body's bytes; an absent body is empty. R1 */
export function readBody(request: IncomingMessage, bytesMax = BODY_BYTES_MAX): Promise<Buffer> {
  const encoding = request.headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity") throw invalid("content-encoding: is not supported");
  return new Promise((resolve, reject) => {
    let chunks: Buffer[] = [];
    let bytes = 0;
    let timer: NodeJS.Timeout | undefined;
    const settle = (act: () => void) => {
      clearTimeout(timer);
      request.off("data", onData).off("end", onEnd).off("error", onLost).off("close", onLost);
      act();
    };
    const refuse = () => settle(() => reject(new Refusal("too_large", `The request body is over the limit of ${bytesMax} bytes.`)));
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes <= bytesMax) {
        chunks.push(chunk);
        return;
      }
      chunks = [];
      timer ??= setTimeout(refuse, DRAIN_MS);
      if (bytes > DRAIN_BYTES_MAX) refuse();
    };
    const onEnd = () => (bytes > bytesMax ? refuse() : settle(() => resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks))));
    const onLost = () => settle(() => reject(invalid("body: the connection ended before the body did")));
    request.on("data", onData).on("end", onEnd).on("error", onLost).on("close", onLost);
  });
}

/** The body as JSON. R2 */
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

/** Too deep, or with a name that JavaScript treats apart. */
function refuseOdd(root: unknown): void {
  const left: [value: unknown, depth: number][] = [[root, 0]];
  for (let next = left.pop(); next; next = left.pop()) {
    const [value, depth] = next;
    if (typeof value !== "object" || value === null) continue;
    if (depth >= DEPTH_MAX) throw invalid(`body: nested deeper than ${DEPTH_MAX} levels`);
    if (Object.hasOwn(value, "__proto__")) throw invalid("__proto__: Extra inputs are not permitted");
    for (const inner of Array.isArray(value) ? value : Object.values(value)) left.push([inner, depth + 1]);
  }
}
