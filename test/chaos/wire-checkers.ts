// What must hold of a session as its clients see it, whatever died: pure functions over the events of its list, what was acknowledged, and what the
// hand's disk shows. Each gives what is wrong, in words; an empty list is a pass.

import { z } from "zod";
import type { Faults } from "./checkers.ts";

export const WireEvent = z.looseObject({ id: z.string(), type: z.string(), processed_at: z.string().nullable() });
export type WireEvent = z.infer<typeof WireEvent>;

/** A turn that a client asked for and waited for. */
export interface AskedTurn {
  /** Stands in the message, in the tool's effect and in the last words. */
  readonly nonce: string;
  /** The event as it was acknowledged. */
  readonly acknowledged: WireEvent;
}

/** Every acknowledged event is in the list, once, with what it said, and applied. */
export function lostEventsOf(turns: readonly AskedTurn[], events: readonly WireEvent[]): Faults {
  return turns.flatMap(({ nonce, acknowledged }) => {
    const found = events.filter(({ id }) => id === acknowledged.id);
    if (found.length !== 1) return [`the message of ${nonce} is in the list ${found.length} times`];
    const says = (event: WireEvent | undefined) => JSON.stringify(event?.content);
    if (says(found[0]) !== says(acknowledged)) return [`the message of ${nonce} says something else`];
    return found[0]?.processed_at === null ? [`the message of ${nonce} was never applied`] : [];
  });
}

/** Ids are unique and times never go back. */
export function disorderedEventsOf(events: readonly WireEvent[]): Faults {
  const faults = repeated(events.map(({ id }) => id)).map((id) => `event ${id} is in the list more than once`);
  let before = "";
  for (const { id, processed_at: at } of events) {
    if (at === null) continue;
    if (at < before) faults.push(`the time of ${id} goes back`);
    before = at;
  }
  return faults;
}

/** Each tool use has exactly one result, after it; each result a use. */
export function unpairedCallsOf(events: readonly WireEvent[]): Faults {
  const uses = events.filter(({ type }) => type === "agent.tool_use" || type === "agent.custom_tool_use");
  const results = events.flatMap((event, at) => {
    const use = event.tool_use_id ?? event.custom_tool_use_id;
    return event.type.endsWith("tool_result") && typeof use === "string" ? [{ use, at }] : [];
  });
  const faults = uses.flatMap((use) => {
    const own = results.filter((result) => result.use === use.id);
    if (own.length !== 1) return [`tool use ${use.id} has ${own.length} results`];
    return own.every(({ at }) => at > events.indexOf(use)) ? [] : [`tool use ${use.id} stands after its result`];
  });
  const orphans = results.filter((result) => !uses.some(({ id }) => id === result.use));
  return [...faults, ...orphans.map(({ use }) => `a result for ${use}, which nobody used`)];
}

/** Each model request that was begun has exactly one end. */
export function danglingSpansOf(events: readonly WireEvent[]): Faults {
  const starts = events.filter(({ type }) => type === "span.model_request_start").map(({ id }) => id);
  const ends = events.filter(({ type }) => type === "span.model_request_end").map((event) => String(event.model_request_start_id));
  return [
    ...starts.filter((id) => ends.filter((end) => end === id).length !== 1).map((id) => `model request ${id} does not end exactly once`),
    ...ends.filter((id) => !starts.includes(id)).map((id) => `the end of ${id}, which never began`),
  ];
}

/** Each turn came to its last words, once, and then to exactly one idle `end_turn`; nothing gave up. */
export function unfinishedTurnsOf(turns: readonly AskedTurn[], events: readonly WireEvent[]): Faults {
  const faults: string[] = [];
  const asked = turns.map(({ acknowledged }) => events.findIndex(({ id }) => id === acknowledged.id));
  for (const [index, { nonce }] of turns.entries()) {
    const own = events.slice(asked[index], asked[index + 1]);
    const last = own.filter((event) => event.type === "agent.message" && JSON.stringify(event.content).includes(lastWordsOf(nonce)));
    if (last.length !== 1) faults.push(`the turn of ${nonce} says its last words ${last.length} times`);
    const idles = own.filter(({ type }) => type === "session.status_idle").map(stopOf);
    if (idles.join() !== "end_turn") faults.push(`the turn of ${nonce} ends with [${idles.join()}]`);
  }
  const given = events.filter((event) => event.type === "session.error" && /exhausted|terminal/.test(JSON.stringify(event.error)));
  return [...faults, ...given.map((event) => `gave up: ${JSON.stringify(event.error)}`)];
}

/** What a tool that is not safe to repeat did, did happen at most once; and where its result says that it happened, it did. */
export function repeatedEffectsOf(turns: readonly AskedTurn[], events: readonly WireEvent[], effects: readonly string[]): Faults {
  const own = effects.filter((line) => turns.some(({ nonce }) => nonce === line));
  const faults = repeated(own).map((line) => `the effect ${line} happened more than once`);
  for (const { nonce } of turns) {
    const result = resultOf(nonce, events);
    if (result?.is_error === false && !effects.includes(nonce)) faults.push(`the tool of ${nonce} says that it ran, and its effect is not there`);
  }
  return faults;
}

function resultOf(nonce: string, events: readonly WireEvent[]): WireEvent | undefined {
  const use = events.find((event) => event.type === "agent.tool_use" && event.name === "bash" && JSON.stringify(event.input).includes(nonce));
  return events.find((event) => event.type === "agent.tool_result" && event.tool_use_id === use?.id);
}

/** What the log says that the turn's tool came to. */
export function toldOf(nonce: string, events: readonly WireEvent[]): string {
  const result = resultOf(nonce, events);
  return `${result?.is_error === true ? "error: " : ""}${JSON.stringify(result?.content ?? null)}`;
}

export const lastWordsOf = (nonce: string): string => `all done with ${nonce}`;

function stopOf(event: WireEvent): string {
  const read = z.looseObject({ type: z.string() }).safeParse(event.stop_reason);
  return read.success ? read.data.type : "nothing";
}

function repeated(items: readonly string[]): readonly string[] {
  return [...new Set(items.filter((item, at) => items.indexOf(item) !== at))];
}
