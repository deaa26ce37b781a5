// What the model API refused for good, and how a session goes on after it: one bad input must not have every later request refused as well.
//
//   X1  A refusal of a request's input is noted in the log. What was said or came to a result since the last reply, and could be its cause, is
//       given as a short note from then on: pictures, documents, texts of great length.
//   X2  What lies behind an address may be gone later: after a refusal, media by address are left out wherever they stand before it.
//   X3  Where a request was too large and brought nothing of that kind since the last reply, what is older is too much: all media before it are left out.
//   X4  The same log gives the same entries: what was answered once, and is no address, stays as it was.

import { APIError } from "@anthropic-ai/sdk";
import type { HarnessSession } from "../harness.ts";

type Entry = ReturnType<HarnessSession["getEvents"]>[number];
type ResultBlock = Extract<Entry, { type: "agent.tool_result" }>["content"][number];
type Text = Extract<ResultBlock, { type: "text" }>;

type Refusal = "input" | "size";
/** Longer texts of a refused request are cut to TEXT_CHARS_KEPT: about a third of the smallest context window. */
const TEXT_CHARS_MAX = 200_000;
const TEXT_CHARS_KEPT = 20_000;

const REFUSING_STATUS = new Set([400, 413, 422]);
const REFUSING_KINDS = new Set(["invalid_request_error", "request_too_large"]);

/** Did the API refuse what the request says, so that the same request is refused again? */
export function refusalOf(error: unknown): Refusal | null {
  if (!(error instanceof APIError)) return null;
  const kind: string = error.type ?? "";
  const isRefused = error.status === undefined ? REFUSING_KINDS.has(kind) : REFUSING_STATUS.has(error.status);
  if (!isRefused) return null;
  return error.status === 413 || kind === "request_too_large" ? "size" : "input";
}

/** Remembers that the request which is open now was refused. X1 */
export const noteRefusal = (session: HarnessSession, refused: Refusal): Promise<void> => session.note({ refused });

/** The results of calls that came by the session's own door are not the model's: they neither take room among its pictures nor are a refusal's cause. */
function withoutAsked(entries: readonly Entry[]): readonly Entry[] {
  const asked = new Set<string>(entries.flatMap((entry) => (entry.type === "log.asked" ? [entry.id] : [])));
  if (asked.size === 0) return entries;
  return entries.filter((entry) => {
    if (entry.type === "agent.tool_result") return !asked.has(entry.tool_use_id);
    return entry.type !== "agent.mcp_tool_result" || !asked.has(entry.mcp_tool_use_id);
  });
}

/** The entries as they may be shown to the model after what was refused. X1 X2 X3 */
export function withoutRefused(given: readonly Entry[]): readonly Entry[] {
  const entries = withoutAsked(given);
  const last = entries.findLastIndex((entry) => noted(entry) !== null);
  if (last < 0) return entries;
  const fates = fatesOf(entries.slice(0, last + 1));
  return entries.map((entry, at) => {
    const fate = fates.get(entry.type === "log.received" ? entry.event.id : at);
    return fate === undefined ? entry : cleaned(entry, fate === "refused");
  });
}

/**
 * What stands before the last refusal, by the id of a client's event or the place of a result: `refused` if a refusal comes before the next
 * reply, or if all of it was too much. What waits has no place yet: a message stands where it is applied.
 */
function fatesOf(before: readonly Entry[]): ReadonlyMap<string | number, "refused" | "passed"> {
  const fates = new Map<string | number, "refused" | "passed">();
  const said = new Map<string, boolean>();
  /** Since the last reply; and of these, whether any since the last refusal could be its cause. */
  let open: (string | number)[] = [];
  let isSuspect = false;
  const place = (name: string | number, suspect: boolean) => {
    fates.set(name, "passed");
    open.push(name);
    isSuspect ||= suspect;
  };
  for (const [at, entry] of before.entries()) {
    const refused = noted(entry);
    if (refused !== null) {
      const isAllTooMuch = refused === "size" && !isSuspect;
      for (const name of isAllTooMuch ? [...fates.keys()] : open) fates.set(name, "refused");
      isSuspect = false;
    } else if (entry.type === "log.reply") {
      open = [];
      isSuspect = false;
    } else if (entry.type === "log.applied") place(entry.id, said.get(entry.id) ?? false);
    else if (entry.type === "log.outcome") place(entry.id, said.get(entry.id) ?? false);
    else if (entry.type === "log.received") {
      const suspect = isSuspectEvent(entry.event);
      if (entry.waits || entry.event.type === "user.define_outcome") said.set(entry.event.id, suspect);
      else place(entry.event.id, suspect);
    } else if (entry.type === "agent.tool_result" || entry.type === "agent.mcp_tool_result" || entry.type === "user.custom_tool_result")
      place(at, hasSuspect(entry.content));
  }
  return fates;
}

function isSuspectEvent(event: Extract<Entry, { type: "log.received" }>["event"]): boolean {
  if (event.type === "user.define_outcome") return event.rubric.content.length > TEXT_CHARS_MAX;
  return "content" in event && hasSuspect(event.content ?? []);
}

function hasSuspect(content: readonly ResultBlock[]): boolean {
  return content.some((block) => block.type === "image" || block.type === "document" || (block.type === "text" && isLong(block)));
}

const isLong = ({ text }: Text): boolean => text.length > TEXT_CHARS_MAX;

function noted(entry: Entry): Refusal | null {
  if (entry.type !== "log.note" || entry.harness !== "claude") return null;
  const { data } = entry;
  if (typeof data !== "object" || data === null || !("refused" in data)) return null;
  return data.refused === "input" || data.refused === "size" ? data.refused : null;
}

function cleaned(entry: Entry, isRefused: boolean): Entry {
  if (entry.type === "agent.tool_result" || entry.type === "agent.mcp_tool_result" || entry.type === "user.custom_tool_result")
    return { ...entry, content: entry.content.map((block) => shownOf(block, isRefused)) };
  if (entry.type !== "log.received") return entry;
  const { event } = entry;
  switch (event.type) {
    case "user.message":
      return { ...entry, event: { ...event, content: event.content.map((block) => shownOf(block, isRefused)) } };
    case "user.custom_tool_result":
    case "user.tool_result":
      return { ...entry, event: { ...event, content: event.content?.map((block) => shownOf(block, isRefused)) } };
    case "system.message":
      return { ...entry, event: { ...event, content: event.content.map((block) => shownOf(block, isRefused)) } };
    case "user.define_outcome": {
      const { text } = shownOf<Text>({ type: "text", text: event.rubric.content }, isRefused);
      return { ...entry, event: { ...event, rubric: { type: "text", content: text } } };
    }
    default:
      return entry;
  }
}

function shownOf<Block extends ResultBlock>(block: Block, isRefused: boolean): Block | Text {
  switch (block.type) {
    case "image":
    case "document": {
      const noun = block.type === "image" ? "picture" : "document";
      if (block.source.type === "url") return said(`[A ${noun} by address was left out: the model's API refused a request that it was in.]`);
      return isRefused ? said(`[A ${noun} was left out: the model's API refused the request that it came in.]`) : block;
    }
    case "text":
      if (!isRefused || !isLong(block)) return block;
      return said(
        `${block.text.slice(0, TEXT_CHARS_KEPT)}\n[The rest of ${block.text.length} characters was left out: the model's API refused the request.]`,
      );
    default:
      return block;
  }
}

const said = (text: string): Text => ({ type: "text", text });
