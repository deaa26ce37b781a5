// What an entry does beyond standing in its log: one pure function, used by every driver, so that no driver holds a rule about types.
//
//   X1  `waiting` counts received entries that no brain has applied, an outcome and a call of the session's door that none has taken up among them;
//       `open` counts calls without a result.
//   X2  A gate entry can change what may come next (admit.ts): waiting calls, answers, interrupts, status, updates, archive, an outcome's begin and
//       end.
//   X3  Of an outcome each entry sets what it alone knows: its description, its state, what its grader said last, when it ended.

import type { Entry } from "./entry.ts";
import type { ClientEvent } from "./events/client.ts";

export interface EntryEffects {
  /** Projection fields to set; a trailing `@` of a name stands for the entry's own position. */
  readonly set: Readonly<Record<string, unknown>>;
  /** Projection fields that get the entry's time (ms). */
  readonly stamp: readonly string[];
  /** Projection fields to remove. */
  readonly drop: readonly string[];
  readonly waiting: number;
  readonly open: number;
  readonly isGate: boolean;
  readonly wakes: boolean;
  readonly isUrgent: boolean;
  readonly isProgress: boolean;
}

const NONE: EntryEffects = { set: {}, stamp: [], drop: [], waiting: 0, open: 0, isGate: false, wakes: false, isUrgent: false, isProgress: false };

export function effectsOf(entry: Entry): EntryEffects {
  switch (entry.type) {
    case "log.created": {
      const { agent, environment_id, title, metadata, resources, vault_ids } = entry;
      return { ...NONE, set: { agent, environment_id, title, metadata, resources, vault_ids } };
    }
    case "log.received":
      return received(entry.event, entry.waits);
    case "log.applied":
      return { ...NONE, drop: [`pending:${entry.ref}`], waiting: -1 };
    case "log.outcome":
      return { ...NONE, set: stateOf(entry.outcome_id, "running", 0), waiting: -1 };
    case "log.resources":
      return { ...NONE, set: { resources: entry.resources } };
    case "log.asked":
      return { ...NONE, waiting: 1, wakes: true, isProgress: true };
    case "log.taken":
      return { ...NONE, waiting: -1 };
    case "log.reply":
      return { ...NONE, isProgress: true };
    case "log.hand":
      if (entry.server !== undefined) return NONE;
      return { ...NONE, set: { hand: { hand: entry.hand, host: entry.host, state: entry.state } } };
    case "agent.tool_use":
    case "agent.mcp_tool_use":
      return { ...NONE, set: { [`call:${entry.id}`]: { kind: entry.evaluated_permission, name: entry.name } }, open: 1, isGate: true };
    case "agent.custom_tool_use":
      return { ...NONE, set: { [`call:${entry.id}`]: { kind: "custom", name: entry.name } }, open: 1, isGate: true };
    case "agent.tool_result":
      return { ...NONE, drop: [`call:${entry.tool_use_id}`, `answered:${entry.tool_use_id}`], open: -1, isGate: true, isProgress: true };
    case "agent.mcp_tool_result":
      return { ...NONE, drop: [`call:${entry.mcp_tool_use_id}`, `answered:${entry.mcp_tool_use_id}`], open: -1, isGate: true, isProgress: true };
    case "user.custom_tool_result":
      return { ...NONE, drop: [`call:${entry.custom_tool_use_id}`], open: -1, isGate: true };
    case "span.outcome_evaluation_start":
      return { ...NONE, set: stateOf(entry.outcome_id, "evaluating", entry.iteration) };
    case "span.outcome_evaluation_end":
      return evaluated(entry);
    case "session.status_running":
      return { ...NONE, stamp: ["running_since"], drop: ["rescheduling", "stop_reason"] };
    case "session.status_rescheduled":
      return { ...NONE, set: { rescheduling: true } };
    case "session.status_idle":
      return { ...NONE, set: { stop_reason: entry.stop_reason }, drop: ["rescheduling", "running_since"], isGate: true };
    case "session.status_terminated":
      return { ...NONE, set: { terminated: true }, stamp: ["archived_at"], drop: ["rescheduling", "running_since"], isGate: true };
    case "session.usage":
      return { ...NONE, set: { usage: entry.usage } };
    case "session.updated": {
      const { title, metadata, agent } = entry;
      const set = Object.fromEntries(Object.entries({ title, metadata, agent }).filter(([, value]) => value !== undefined));
      return { ...NONE, set, isGate: true };
    }
    default:
      return NONE;
  }
}

const stateOf = (id: string, result: string, iteration: number) => ({ [`outcome_state:${id}`]: { result, iteration } });

/** X3 */
function evaluated({ outcome_id: id, iteration, result, explanation }: Extract<Entry, { type: "span.outcome_evaluation_end" }>): EntryEffects {
  // An interrupt is no grader's word.
  const says = result === "interrupted" ? {} : { [`outcome_says:${id}`]: explanation };
  if (result === "needs_revision") return { ...NONE, set: { ...stateOf(id, "running", iteration + 1), ...says }, isProgress: true };
  return { ...NONE, set: { ...stateOf(id, result, iteration), ...says }, stamp: [`outcome_ended:${id}`], isGate: true, isProgress: true };
}

function received(event: ClientEvent, waits: boolean): EntryEffects {
  const woken = { ...NONE, wakes: true, isProgress: true };
  const pending = { set: { "pending:@": { id: event.id, type: event.type } }, waiting: 1 };
  switch (event.type) {
    case "user.message":
    case "system.message":
      return { ...woken, ...pending };
    case "user.define_outcome": {
      const { description, outcome_id } = event;
      return { ...woken, set: { "outcome:@": { outcome_id, description }, ...stateOf(outcome_id, "pending", 0) }, waiting: 1, isGate: true };
    }
    case "user.interrupt":
      // On an idle session with nothing open an interrupt has no effect: it is done with when it arrives (contract §8.4).
      return waits ? { ...woken, ...pending, isGate: true, isUrgent: true } : { ...NONE, isGate: true };
    case "user.tool_confirmation":
      return { ...woken, ...pending, set: { ...pending.set, [`answered:${event.tool_use_id}`]: event.result }, isGate: true, isUrgent: true };
    case "user.custom_tool_result":
      return { ...woken, drop: [`call:${event.custom_tool_use_id}`], open: -1, isGate: true, isUrgent: true };
    case "user.tool_result":
      return { ...woken, drop: [`call:${event.tool_use_id}`], open: -1, isGate: true, isUrgent: true };
  }
}

/** The effects of a whole append: what a driver's step applies. */
export interface AppendEffects extends Omit<EntryEffects, "set"> {
  /** Field → JSON text; a trailing `@<i>` of a name stands for the position of the batch's entry i. Applied after `drop`. */
  readonly set: Readonly<Record<string, string>>;
  /** Index of the last gate entry in the batch, or -1. */
  readonly gateIndex: number;
}

/** Folds the effects of a batch, in order. */
export function effectsOfAll(entries: readonly Entry[]): AppendEffects {
  const set: Record<string, string> = {};
  const drop = new Set<string>();
  const stamp = new Set<string>();
  const sum = { waiting: 0, open: 0, isGate: false, wakes: false, isUrgent: false, isProgress: false, gateIndex: -1 };
  for (const [index, entry] of entries.entries()) {
    const effects = effectsOf(entry);
    for (const name of effects.drop) {
      delete set[name];
      stamp.delete(name);
      drop.add(name);
    }
    for (const name of effects.stamp) stamp.add(name);
    for (const [name, value] of Object.entries(effects.set)) set[name.endsWith("@") ? `${name}${index}` : name] = JSON.stringify(value);
    sum.waiting += effects.waiting;
    sum.open += effects.open;
    sum.isGate ||= effects.isGate;
    sum.wakes ||= effects.wakes;
    sum.isUrgent ||= effects.isUrgent;
    sum.isProgress ||= effects.isProgress;
    if (effects.isGate) sum.gateIndex = index;
  }
  return { ...sum, set, drop: [...drop], stamp: [...stamp] };
}
