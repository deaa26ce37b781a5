// What an append says to a step, and what steps answer about stored entries.

import type { AppendEffects } from "../../effects.ts";
import type { Entry, OutsideEntry, Stored } from "../../entry.ts";
import type { Fence, Position } from "../../ids.ts";
import { position } from "../../ids.ts";
import { Refusal } from "../../refusal.ts";
import type { Answer } from "./commands.ts";
import { list, text, whole } from "./reply.ts";

/** The block of arguments that session.lua describes. */
export function blockOf(entries: readonly Entry[], effects: AppendEffects, isProgress: boolean): string[] {
  const set = Object.entries(effects.set);
  return [
    String(entries.length),
    ...entries.flatMap((entry) => [entry.type, JSON.stringify(entry)]),
    String(effects.drop.length),
    ...effects.drop,
    String(effects.stamp.length),
    ...effects.stamp,
    String(set.length),
    ...set.flat(),
    String(effects.waiting),
    String(effects.open),
    String(effects.gateIndex),
    isProgress ? "1" : "0",
  ];
}

export function eventIdOf(entry: OutsideEntry): string {
  return entry.type === "log.received" ? entry.event.id : entry.id;
}

/** Reads the answer of a brain's append: its entries as they are stored. */
export function appended(answer: Answer, entries: readonly Entry[], fence: Fence): readonly Stored[] {
  const [first, second] = answer.rest;
  switch (answer.word) {
    case "ok":
      return placed(entries, whole(first), whole(second), fence);
    case "again":
      return list(first).map(storedOf);
    case "fenced":
      throw new Refusal("fenced", undefined, { detail: `fence ${fence}, newest ${text(first)}` });
    case "out_of_step":
      throw new Refusal("out_of_step", undefined, { detail: `last n is ${text(first)}` });
    default:
      throw refused(answer);
  }
}

/** Entries in the places that a step gave them. */
export function placed(entries: readonly Entry[], from: number, at: number, fence: Fence): readonly Stored[] {
  return entries.map((entry, index) => ({ position: position(from + index), at, fence, entry }));
}

const REFUSED = {
  not_found: "session_not_found",
  busy: "session_busy",
  conflict: "idempotency_conflict",
} as const;

/** The refusals that several steps share. */
export function refused(answer: Answer): Error {
  const code = REFUSED[answer.word as keyof typeof REFUSED];
  return code ? new Refusal(code) : new TypeError(`a step answered "${answer.word}"`);
}

/** An entry of the stream as XRANGE gives it. The one place where stored text becomes an entry again: it is what `blockOf` wrote. */
export function storedOf(row: unknown): Stored {
  const [id, fields] = list(row);
  const [, at, , fence, , , , json] = list(fields);
  return { position: placeOf(id), at: whole(at), fence: whole(fence) as Fence, entry: JSON.parse(text(json)) as Entry };
}

export const placeOf = (id: unknown): Position => position(Number.parseInt(text(id), 10));

/** The type of an entry of the stream, without reading the whole of it. */
export const typeOf = (row: unknown): string => text(list(list(row)[1])[5]);

/** The length of its JSON. */
export const sizeOf = (row: unknown): number => text(list(list(row)[1])[7]).length;
