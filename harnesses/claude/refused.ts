// What the model API refused for good, and how a session goes on after it: one bad input must not have every later request refused as well.
//
//   X1  A refusal of a request's input is noted in the log. What was said or came to a result since the last reply, and could be its cause, is
//       given as a short note from then on: pictures, documents, texts of great length.
//   X2  What lies behind an address may be gone later: after a refusal, media by address are left out wherever they stand before it.
//   X3  The same log gives the same entries: what was answered once, and is no address, stays as it was.

import { APIError } from "@anthropic-ai/sdk";
import type { HarnessSession } from "../harness.ts";

type Entry = ReturnType<HarnessSession["getEvents"]>[number];
type ResultBlock = Extract<Entry, { type: "agent.tool_result" }>["content"][number];
type Text = Extract<ResultBlock, { type: "text" }>;

const NOTE = { refused: "input" } as const;
/** Longer texts of a refused request are cut to TEXT_CHARS_KEPT: about a third of the smallest context window. */
const TEXT_CHARS_MAX = 200_000;
const TEXT_CHARS_KEPT = 20_000;

const REFUSING_STATUS = new Set([400, 413, 422]);
const REFUSING_KINDS = new Set(["invalid_request_error", "request_too_large"]);

/** Did the API refuse what the request says, so that the same request is refused again? */
export function isInputRefused(error: unknown): boolean {
  if (!(error instanceof APIError)) return false;
  return error.status === undefined ? REFUSING_KINDS.has(error.type ?? "") : REFUSING_STATUS.has(error.status);
}

/** Remembers that the request which is open now was refused. X1 */
export const noteRefusal = (session: HarnessSession): Promise<void> => session.note(NOTE);

/** The entries as they may be shown to the model after what was refused. X1 X2 X3 */
export function withoutRefused(entries: readonly Entry[]): readonly Entry[] {
  const last = entries.findLastIndex(isNote);
  if (last < 0) return entries;
  const fates = fatesOf(entries.slice(0, last));
  return entries.map((entry, at) => {
    const fate = fates.get(entry.type === "log.received" ? entry.event.id : at);
    return fate === undefined ? entry : cleaned(entry, fate === "refused");
  });
}

/**
 * What stands before the last refusal, by the id of a client's event or the place of a result: `refused` if a refusal comes before the next
 * reply. What waits has no place yet: a message stands where it is applied.
 */
function fatesOf(before: readonly Entry[]): ReadonlyMap<string | number, "refused" | "passed"> {
  const fates = new Map<string | number, "refused" | "passed">();
  let fate: "refused" | "passed" = "refused";
  for (let at = before.length - 1; at >= 0; at -= 1) {
    const entry = before[at];
    if (!entry) continue;
    if (isNote(entry)) fate = "refused";
    else if (entry.type === "log.reply") fate = "passed";
    else if (entry.type === "log.applied") fates.set(entry.id, fate);
    else if (entry.type === "log.received" && !entry.waits) fates.set(entry.event.id, fate);
    else fates.set(at, fate);
  }
  return fates;
}

function isNote(entry: Entry): boolean {
  if (entry.type !== "log.note" || entry.harness !== "claude") return false;
  const { data } = entry;
  return typeof data === "object" && data !== null && "refused" in data && data.refused === NOTE.refused;
}

function cleaned(entry: Entry, isRefused: boolean): Entry {
  if (entry.type === "agent.tool_result" || entry.type === "user.custom_tool_result")
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
      if (!isRefused || block.text.length <= TEXT_CHARS_MAX) return block;
      return said(
        `${block.text.slice(0, TEXT_CHARS_KEPT)}\n[The rest of ${block.text.length} characters was left out: the model's API refused the request.]`,
      );
    default:
      return block;
  }
}

const said = (text: string): Text => ({ type: "text", text });
