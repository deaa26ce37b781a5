// What must hold after any fault: pure functions over what was acknowledged and what a fresh reader sees. Each gives what is wrong, in words;
// an empty list is a pass.

import type { Stored } from "../../session-store/entry.ts";
import type { SessionRecord } from "../../session-store/session.ts";
import { pendingOf } from "../../session-store/session.ts";

export type Faults = readonly string[];

/** Every acknowledged entry is in its place with its content, time and fence; gives the positions of those that are not. S1 S5 */
export function lostOf(acknowledged: readonly Stored[], log: readonly Stored[]): Faults {
  const there = new Map(log.map((stored) => [stored.position, JSON.stringify(canonical(stored))]));
  return acknowledged
    .filter((stored) => there.get(stored.position) !== JSON.stringify(canonical(stored)))
    .map((stored) => `position ${stored.position} (${stored.entry.type}) is ${there.has(stored.position) ? "another one" : "gone"}`);
}

/** No entry stands twice: ids of events, and the text of notes, are unique along a log. S3 S9 */
export function doubledOf(log: readonly Stored[]): Faults {
  const seen = new Map<string, number>();
  for (const { entry } of log) {
    const key = identityOf(entry);
    if (key !== null) seen.set(key, (seen.get(key) ?? 0) + 1);
  }
  return [...seen].filter(([, times]) => times > 1).map(([key, times]) => `${key} stands ${times} times`);
}

/** Positions are dense, times never go back, fences never fall. S1 S2 S6 */
export function disorderOf(log: readonly Stored[]): Faults {
  const faults: string[] = [];
  let [at, fence] = [0, 0];
  for (const [index, stored] of log.entries()) {
    if (stored.position !== index + 1) faults.push(`position ${stored.position} stands where ${index + 1} should`);
    if (stored.at < at) faults.push(`the time at position ${stored.position} goes back`);
    if (stored.fence !== 0 && stored.fence < fence) faults.push(`fence ${stored.fence} at position ${stored.position} after fence ${fence}`);
    at = stored.at;
    fence = Math.max(fence, stored.fence);
  }
  return faults;
}

/** The record says what the log comes to: its head, its time, and what waits. S7 */
export function disagreementOf(record: SessionRecord, log: readonly Stored[]): Faults {
  const last = log.at(-1);
  const applied = new Set(log.flatMap(({ entry }) => (entry.type === "log.applied" ? [entry.ref] : [])));
  const waiting = log.filter(({ position, entry }) => entry.type === "log.received" && entry.waits && !applied.has(position));
  const [said, follows] = [pendingOf(record.projection), waiting].map((list) => list.map(({ position }) => position).join(" "));
  return [
    ...(record.head === last?.position ? [] : [`the head is ${record.head}, the log ends at ${last?.position}`]),
    ...(record.updatedAt === last?.at ? [] : [`the record's time is ${record.updatedAt}, the last entry's ${last?.at}`]),
    ...(said === follows ? [] : [`positions [${said}] wait by the record, [${follows}] by the log`]),
  ];
}

function identityOf(entry: Stored["entry"]): string | null {
  switch (entry.type) {
    case "log.received":
      return `received ${entry.event.id}`;
    case "log.applied":
      return `applied ${entry.id}`;
    case "log.outcome":
      return `taken up ${entry.id}`;
    case "log.asked":
      return `asked ${entry.id}`;
    case "log.taken":
      return `taken ${entry.id}`;
    case "log.note":
      return `note ${JSON.stringify(entry.data)}`;
    case "log.created":
    case "log.reply":
    case "log.hand":
    case "log.tools":
    case "log.repositories":
    case "log.grading":
      return null;
    default:
      return `event ${entry.id}`;
  }
}

/** The same value with the keys of its objects in order: a store may keep them in another. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([key, inner]) => [key, canonical(inner)]),
  );
}
