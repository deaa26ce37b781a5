// Between the store's terms and the JSON text that the store's thread keeps.

import type { Document, DocumentWrite } from "../../documents.ts";
import { effectsOfAll } from "../../effects.ts";
import type { Entry, Stored } from "../../entry.ts";
import type { Fence, SessionId } from "../../ids.ts";
import { position } from "../../ids.ts";
import type { SessionRecord } from "../../session.ts";
import type { Append, Appended, DocumentText, RecordText, StoredText, WriteText } from "./protocol.ts";

export function appendOf(entries: readonly Entry[], isFromOutside: boolean): Append {
  return {
    entries: entries.map((entry) => ({ type: entry.type, id: isFromOutside ? outsideIdOf(entry) : null, json: JSON.stringify(entry) })),
    effects: effectsOfAll(entries),
  };
}

export function bytesOf({ entries }: Append): number {
  return entries.reduce((sum, { json }) => sum + json.length, 0);
}

/** What an append came to: a fresh one is what was sent, at its place. */
export function appendedOf(appended: Appended, fence: number, entries: readonly Entry[]): readonly Stored[] {
  if ("again" in appended) return appended.again.map(storedOf);
  return entries.map((entry, index) => ({ position: position(appended.from + index), at: appended.at, fence: fence as Fence, entry }));
}

export function storedOf({ position: at, at: time, fence, json }: StoredText): Stored {
  return { position: position(at), at: time, fence: fence as Fence, entry: JSON.parse(json) };
}

export function recordOf(text: RecordText): SessionRecord {
  return {
    ...text,
    id: text.id as SessionId,
    head: position(text.head),
    gate: position(text.gate),
    fence: text.fence as Fence,
    projection: Object.fromEntries(text.projection.map(({ name, value }) => [name, JSON.parse(value)])),
  };
}

export function writeOf({ kind, id, body, replaces, isArchived = false, name = null }: DocumentWrite): WriteText {
  // A name is kept as JSON text: SQLite's text can't hold every character that a name may.
  return { kind, id, body: JSON.stringify(body ?? null), replaces, isArchived, name: name === null ? null : JSON.stringify(name) };
}

export function documentOf(text: DocumentText): Document {
  return { ...text, body: JSON.parse(text.body) };
}

function outsideIdOf(entry: Entry): string | null {
  if (entry.type === "log.received") return entry.event.id;
  return "id" in entry ? entry.id : null;
}
