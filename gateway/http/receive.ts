// Check, then receive: again where something came between (DETAILS of the store: the gate).
//
//   Y1  What was checked is what is stored: the gate that the check was made against goes along, and when it moved, the check is made again.
//   Y2  A bounded number of tries with a little jitter, then `store_busy`.
//   Y3  What is always welcome (an interrupt) stops waiting for a quiet moment after a few tries: a busy session must not keep it out.

import { setTimeout as sleep } from "node:timers/promises";
import { effectsOf } from "../../session-store/effects.ts";
import type { OutsideEntry, Stored } from "../../session-store/entry.ts";
import type { SessionId } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionRecord } from "../../session-store/session.ts";
import type { ReceiveOptions } from "../../session-store/store.ts";
import type { Asker, Door } from "./call.ts";
import { ownSession } from "./call.ts";

const TRIES_MAX = 10;
const GATED_TRIES_MAX = 3;
const JITTER_MS = 8;

export interface Checked {
  readonly entries: readonly OutsideEntry[];
  readonly onlyIdle: boolean;
  /** Y3 */
  readonly isAlwaysWelcome?: boolean;
}

export interface Outcome {
  /** As it is after the entries, as far as these set it; for an update or an archive that is all of it. */
  readonly record: SessionRecord;
  readonly stored: readonly Stored[];
}

/** `decide` looks at the present record: it refuses, gives what to receive, or null for nothing. It may be asked again. */
export async function receiveChecked(
  door: Door,
  call: Asker,
  id: SessionId,
  decide: (record: SessionRecord) => Checked | null,
  options: Omit<ReceiveOptions, "gate" | "onlyIdle"> = {},
): Promise<Outcome> {
  for (let tries = 1; ; tries += 1) {
    const record = await ownSession(door, call, id);
    const checked = decide(record);
    if (!checked) return { record, stored: [] };
    const isGated = !checked.isAlwaysWelcome || tries <= GATED_TRIES_MAX;
    const stored = await receive(door, id, checked, isGated ? { ...options, gate: record.gate } : options);
    if (stored !== "moved") return { record: stored.length === 0 ? record : after(record, stored), stored };
    if (tries >= TRIES_MAX) throw new Refusal("store_busy", undefined, { detail: `the gate of ${id} moved ${tries} times` });
    await sleep(Math.random() * JITTER_MS * tries);
  }
}

async function receive(door: Door, id: SessionId, checked: Checked, options: ReceiveOptions): Promise<readonly Stored[] | "moved"> {
  try {
    return await door.store.receive(id, checked.entries, checked.onlyIdle ? { ...options, onlyIdle: true } : options);
  } catch (error) {
    // It was idle when it was checked; now it is not: check again, which says what follows from that.
    if (checked.onlyIdle && error instanceof Refusal && error.code === "session_busy") return "moved";
    throw error;
  }
}

/** The record with the gateway's own entries on it; saves reading it again. */
function after(record: SessionRecord, stored: readonly Stored[]): SessionRecord {
  const projection: Record<string, unknown> = { ...record.projection };
  for (const { entry, at } of stored) {
    const { set, drop, stamp } = effectsOf(entry);
    for (const name of drop) delete projection[name];
    Object.assign(projection, set);
    for (const name of stamp) projection[name] = at;
  }
  return { ...record, updatedAt: stored.at(-1)?.at ?? record.updatedAt, head: stored.at(-1)?.position ?? record.head, projection };
}
