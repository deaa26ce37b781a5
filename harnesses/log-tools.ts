// The log as a hand: an MCP server called at `hand:session`, by which a session reads its own log beyond the model's context. Read-only.
//
//   Q1  Every answer is bounded, in events and in characters, and says where to go on.
//   Q2  A search reads text as it stands, or with `*` for any characters: it takes time in proportion to the text, whatever is searched for.
//   Q3  Reading changes nothing, `rewind` neither: it shows what had been said before an event, and the session stays as it is.

import { createHash } from "node:crypto";
import { z } from "zod";
import type { Outcome, ServerTool, ServerTools } from "../hands/hand.ts";
import type { Stored } from "../session-store/entry.ts";
import { position } from "../session-store/ids.ts";
import type { Slice } from "../session-store/store.ts";
import { cut, eventIn, lineOf, shownOf } from "./log-shown.ts";

/** The address under which an agent names it. */
export const LOG_URL = "hand:session";

const EVENTS_MAX = 100;
const FOUND_MAX = 50;
/** Of one answer: well below what is cut of a result. Q1 */
const ANSWER_CHARS_MAX = 24_000;
const TEXT_CHARS_MAX = 2_000;
const TEXT_CHARS_TOP = 20_000;
const AROUND_CHARS = 160;
/** Entries that one search looks at. Q1 */
const SCANNED_MAX = 20_000;
const PAGE = 500;

/** Entries by position, as the store gives them. */
export type LogReader = (slice: Slice) => Promise<readonly Stored[]>;

/** Of a log that is in memory. Positions are dense: an entry's place is its position. */
export function readerOf(entries: readonly Stored[]): LogReader {
  return async ({ after = position(0), before = position(entries.length + 1), types, order = "asc", limit = PAGE }) => {
    const found = entries.slice(after, Math.max(after, before - 1)).filter(({ entry }) => types?.includes(entry.type) ?? true);
    return order === "asc" ? found.slice(0, limit) : found.slice(-limit).reverse();
  };
}

const place = (what: string) => z.int().min(1).max(Number.MAX_SAFE_INTEGER).optional().describe(what);
const between = {
  after: place("Only events after this position"),
  before: place("Only events before this position"),
  types: z.array(z.string().max(64)).max(40).optional().describe('Only events of these types, such as "user.message" or "agent.tool_result"'),
};

const GetEvents = z.strictObject({
  ...between,
  order: z.enum(["newest_first", "oldest_first"]).default("newest_first"),
  limit: z.int().min(1).max(EVENTS_MAX).default(20),
  text_chars: z.int().min(100).max(TEXT_CHARS_TOP).default(TEXT_CHARS_MAX).describe("Longer texts are cut to so many characters"),
});
const SearchEvents = z.strictObject({
  ...between,
  query: z.string().min(1).max(500).describe("Text to find, in any case"),
  wildcards: z.boolean().default(false).describe("Whether * in the query stands for any characters"),
  limit: z.int().min(1).max(FOUND_MAX).default(10),
});
const Rewind = z.strictObject({
  before: z.int().min(1).max(Number.MAX_SAFE_INTEGER).describe("The position of an event: everything before it is shown, it is not"),
  text_chars: z.int().min(100).max(TEXT_CHARS_TOP).default(TEXT_CHARS_MAX).describe("Longer texts are cut to so many characters"),
});

const TOOLS = {
  get_events: {
    input: GetEvents,
    description:
      "Reads this session's own log, also what is no longer in your context: messages, tool uses with inputs and results, status changes. " +
      "Each event has a position: 1, 2, 3 … from the session's beginning. `next` says how to go on.",
    run: getEvents,
  },
  search_events: {
    input: SearchEvents,
    description:
      "Searches this session's own log for a text, newest first. Gives positions, for get_events or rewind, and what stands around each find.",
    run: searchEvents,
  },
  rewind: {
    input: Rewind,
    description:
      "Shows the transcript of this session as it stood before an event, its latest part first cut to size. It only reads: nothing is undone, " +
      "neither the log nor any file.",
    run: rewind,
  },
} as const;

type LogToolName = keyof typeof TOOLS;
const isName = (name: string): name is LogToolName => Object.hasOwn(TOOLS, name);
const hashOf = (value: unknown): string => createHash("sha256").update(JSON.stringify(value)).digest("hex");

/** What the model is told of them. */
export const LOG_TOOLS: Extract<ServerTools, { type: "ready" }> = listed();

function listed(): Extract<ServerTools, { type: "ready" }> {
  const tools = Object.entries(TOOLS).map(([name, { description, input }]): ServerTool => {
    const { $schema: _, ...input_schema } = z.toJSONSchema(input, { io: "input" });
    const annotations = { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false };
    return { name, description, input_schema, annotations, hash: hashOf([name, description, input_schema]) };
  });
  return { type: "ready", hash: hashOf(tools.map(({ hash }) => hash)), tools, notes: [] };
}

/** Q1–Q3 */
export async function runLogTool(read: LogReader, { name, input }: { readonly name: string; readonly input: unknown }): Promise<Outcome> {
  if (!isName(name)) return { type: "failed", reason: `there is no tool ${JSON.stringify(name)}` };
  const says = await answerOf(read, name, input);
  if (says === null)
    return { type: "failed", reason: `its input does not fit: ${z.prettifyError(TOOLS[name].input.safeParse(input).error ?? new z.ZodError([]))}` };
  return { type: "done", content: [{ type: "text", text: JSON.stringify(says).toWellFormed() }], isError: false };
}

async function answerOf(read: LogReader, name: LogToolName, input: unknown): Promise<object | null> {
  const run = async <T>({ input: schema, run: work }: { input: z.ZodType<T>; run: (read: LogReader, given: T) => Promise<object> }) => {
    const given = schema.safeParse(input ?? {});
    return given.success ? work(read, given.data) : null;
  };
  switch (name) {
    case "get_events":
      return run(TOOLS.get_events);
    case "search_events":
      return run(TOOLS.search_events);
    case "rewind":
      return run(TOOLS.rewind);
  }
}

type Between = Pick<z.infer<typeof GetEvents>, "after" | "before" | "types">;

/** What of the log is shown, a page at a time, until the reader has enough. */
async function* shownIn(read: LogReader, { after, before, types }: Between, isNewestFirst: boolean): AsyncGenerator<Stored> {
  let low = position(after ?? 0);
  let high = before === undefined ? undefined : position(before);
  for (let scanned = 0; scanned < SCANNED_MAX; scanned += PAGE) {
    const bounds = { after: low, ...(high !== undefined && { before: high }) };
    const page = await read({ ...bounds, order: isNewestFirst ? "desc" : "asc", limit: PAGE });
    for (const stored of page) {
      const event = eventIn(stored);
      if (event && (types?.includes(event.type) ?? true)) yield stored;
    }
    const last = page.at(-1);
    if (!last) return;
    if (isNewestFirst) high = last.position;
    else low = last.position;
  }
}

async function getEvents(read: LogReader, { order, limit, text_chars, ...bounds }: z.infer<typeof GetEvents>): Promise<object> {
  const isNewestFirst = order === "newest_first";
  const events: object[] = [];
  let chars = 0;
  let last: number | null = null;
  for await (const stored of shownIn(read, bounds, isNewestFirst)) {
    // One event may be all that there is room for: its texts are cut to what is left.
    const shown = shownOf(stored, Math.min(text_chars, ANSWER_CHARS_MAX / 2));
    if (!shown) continue;
    const length = JSON.stringify(shown).length;
    if (events.length >= limit || (events.length > 0 && chars + length > ANSWER_CHARS_MAX))
      return { events, next: isNewestFirst ? { before: last } : { after: last, order } };
    events.push(
      length > ANSWER_CHARS_MAX ? { position: stored.position, type: shown.type, cut: cut(JSON.stringify(shown), ANSWER_CHARS_MAX) } : shown,
    );
    chars += length;
    last = stored.position;
  }
  return { events, next: null };
}

async function searchEvents(read: LogReader, { query, wildcards, limit, ...bounds }: z.infer<typeof SearchEvents>): Promise<object> {
  const parts = (wildcards ? query.split("*") : [query]).filter((part) => part !== "").map((part) => part.toLowerCase());
  const found: object[] = [];
  let looked: number | null = null;
  for await (const stored of shownIn(read, bounds, true)) {
    const event = eventIn(stored);
    if (!event) continue;
    const { type, ...fields } = event;
    const text = textOf(fields);
    const at = matchIn(text.toLowerCase(), parts);
    if (at !== null) {
      if (found.length >= limit) return { found, next: { before: looked } };
      const from = Math.max(0, at - AROUND_CHARS);
      const around = text.slice(from, at + AROUND_CHARS * 2).toWellFormed();
      found.push({ position: stored.position, time: new Date(stored.at).toISOString(), type, around });
    }
    looked = stored.position;
  }
  return { found, next: null };
}

/** Where the parts stand one after another; null: they don't. Q2 */
function matchIn(text: string, parts: readonly string[]): number | null {
  let first: number | null = null;
  let from = 0;
  for (const part of parts) {
    const at = text.indexOf(part, from);
    if (at < 0) return null;
    first ??= at;
    from = at + part.length;
  }
  return first ?? 0;
}

/** All the words of an event, without the bytes of pictures. */
function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value !== "object" || value === null) return value === null || value === undefined ? "" : String(value);
  if ("type" in value && value.type === "base64") return "";
  return Object.values(value)
    .map(textOf)
    .filter((text) => text !== "")
    .join("\n");
}

/** Q3 */
async function rewind(read: LogReader, { before, text_chars }: z.infer<typeof Rewind>): Promise<object> {
  const lines: string[] = [];
  let chars = 0;
  for await (const stored of shownIn(read, { before }, true)) {
    const line = lineOf(stored, Math.min(text_chars, ANSWER_CHARS_MAX / 2));
    if (line === null) continue;
    if (lines.length > 0 && chars + line.length > ANSWER_CHARS_MAX)
      return {
        before,
        transcript: lines.reverse().join("\n\n"),
        earlier: `Events up to position ${stored.position} are left out: rewind before ${stored.position + 1} shows them.`,
      };
    lines.push(line);
    chars += line.length;
  }
  return { before, transcript: lines.reverse().join("\n\n"), earlier: null };
}
