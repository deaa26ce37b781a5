// Headers that repeat arguments of a tool's call (`Mcp-Param-*`), held against the arguments: something between the client and us may have gone by the
// headers, and what carries the call out goes by the body.
//
//   K1  Who reads the body must refuse what differs (revision 2026-07-28, Streamable HTTP, "Server Behavior for Custom Headers"), and we read it. Which
//       headers a tool has says its definition: the approved one, or else the hand's own list, which is read for it. What no definition names passes.
//   K2  A list is believed for FRESH_MS, then read anew while the old one still counts; a tool that it does not have is looked for again, but not more
//       often than every AGAIN_MS. A list that can't be read in time is no reason to refuse: the hand is asked again later.
//   K3  A value is compared as its type: text byte for byte, integers as numbers. A header for an argument that is not there says something that the
//       body does not, and is refused.

import type { IncomingHttpHeaders } from "node:http";
import { argumentAt, type Mark, marksOf } from "../../hands/servers/param-headers.ts";
import { RpcError } from "../mcp/rpc.ts";
import { recordOf } from "./crossed/incoming.ts";
import { keyOf } from "./eras.ts";
import { decoded, HEADER_MISMATCH } from "./inbound.ts";
import { ASIDE_MS } from "./limits.ts";
import type { Upstream } from "./upstream.ts";

const FRESH_MS = 60_000;
const AGAIN_MS = 5_000;
const HANDS_MAX = 1_000;
const PAGES_MAX = 50;
const TOOLS_MAX = 2_000;
const DECIMAL = /^-?\d+(\.\d+)?$/;

type Params = Readonly<Record<string, unknown>>;

export interface Listing {
  readonly params: Params;
  readonly signal: AbortSignal;
}
/** The result of one page of the hand's `tools/list`; undefined: it gave none. */
type ListTools = (listing: Listing) => Promise<unknown>;

/** Names of tools, with what each wants in headers. */
type Marked = ReadonlyMap<string, readonly Mark[]>;

interface Known {
  marked: Marked;
  at: number;
  reading: Promise<void> | null;
}

export class ParamCheck {
  readonly #known = new Map<string, Known>();

  /** Throws where they differ. A promise only where the hand must be asked first. K1 */
  refuseMismatch(upstream: Upstream, headers: IncomingHttpHeaders, params: Params, list: ListTools): Promise<void> | null {
    const { name } = params;
    if (typeof name !== "string") return null;
    const refuse = (marks: readonly Mark[]) => {
      const wrong = wrongIn(marks, params.arguments, headers);
      if (wrong !== null) throw new RpcError(HEADER_MISMATCH, `Header mismatch: ${wrong}`);
    };
    const approved = upstream.hand.tools?.find((tool) => tool.name === name);
    const marks = approved ? marksOf(approved.input_schema) : this.#marksOf(upstream, name, list);
    if (marks instanceof Promise) return marks.then(refuse);
    refuse(marks);
    return null;
  }

  /** K2 */
  #marksOf(upstream: Upstream, tool: string, list: ListTools): readonly Mark[] | Promise<readonly Mark[]> {
    const key = keyOf(upstream);
    const known = this.#known.get(key) ?? { marked: new Map(), at: Number.NEGATIVE_INFINITY, reading: null };
    if (!this.#known.has(key) && this.#known.size >= HANDS_MAX) this.#known.clear();
    this.#known.set(key, known);
    const age = performance.now() - known.at;
    const isThere = known.marked.has(tool);
    if (age > (isThere ? FRESH_MS : AGAIN_MS)) known.reading ??= read(known, list);
    const marks = () => known.marked.get(tool) ?? [];
    return isThere || !known.reading ? marks() : known.reading.then(marks);
  }
}

/** K2 */
async function read(known: Known, list: ListTools): Promise<void> {
  const late = AbortSignal.timeout(ASIDE_MS);
  try {
    known.marked = await Promise.race([markedIn(list, late), over(late)]);
  } catch {
    // What is known stays, and what is not known yet is for the hand to check.
  } finally {
    known.at = performance.now();
    known.reading = null;
  }
}

async function markedIn(list: ListTools, signal: AbortSignal): Promise<Marked> {
  const marked = new Map<string, readonly Mark[]>();
  let cursor: unknown;
  for (let page = 0; page < PAGES_MAX && marked.size < TOOLS_MAX; page += 1) {
    const { tools, nextCursor } = recordOf(await list({ params: cursor === undefined ? {} : { cursor }, signal }));
    for (const { name, inputSchema } of Array.isArray(tools) ? tools.map(recordOf) : [])
      if (typeof name === "string" && marked.size < TOOLS_MAX) marked.set(name, marksOf(inputSchema));
    if (typeof nextCursor !== "string") break;
    cursor = nextCursor;
  }
  return marked;
}

const over = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));

/** K3 */
function wrongIn(marks: readonly Mark[], input: unknown, headers: IncomingHttpHeaders): string | null {
  for (const mark of marks) {
    const name = `Mcp-Param-${mark.header}`;
    const value = argumentAt(input, mark);
    const given = headers[name.toLowerCase()];
    if (value === undefined || value === null) {
      if (given !== undefined) return `the ${name} header is there, and the argument that it repeats is not`;
      continue;
    }
    // What no header can carry exactly is not expected in one.
    if (typeof value === "object" || (Number.isInteger(value) && !Number.isSafeInteger(value))) continue;
    if (typeof given !== "string") return `the body holds an argument that the ${name} header must repeat, and the header is missing`;
    const text = decoded(given.trim());
    const isEqual = typeof value === "number" ? text !== null && DECIMAL.test(text) && Number(text) === value : text === String(value);
    if (!isEqual) return `the ${name} header and the argument that it repeats differ`;
  }
  return null;
}
