// What a server says of its tools, held against what was approved of them. Pure.
//
//   P1  The first list that is read is what gets approved, but for tools whose texts hide something: those wait for somebody who looks.
//   P2  After that, a tool whose definition is another one, or that is new, is held back until somebody approves it: neither offered nor called.
//       A name that moved to another definition is a change of it; a definition that moved to another name is a new tool.
//   P3  An approved tool that the server no longer lists is gone; if it comes back as it was, so is its approval.
//   P4  What a server claims of its tools (annotations) is a part of the definition, and gives no permission to anything.

import type { ServerTool } from "./hand.ts";
import type { PinnedTool, RegisteredHand } from "./registry.ts";
import { suspicionOf } from "./suspicion.ts";

type HeldTool = RegisteredHand["held_back"][number];
export type Pins = Pick<RegisteredHand, "tools" | "held_back" | "missing">;

/** The pins after a list was read. P1 P2 P3 */
export function pinned(before: Pins, live: readonly ServerTool[]): Pins {
  const approved = new Map((before.tools ?? []).map((tool) => [tool.name, tool]));
  const held: HeldTool[] = [];
  const first: PinnedTool[] = [];
  for (const tool of live) {
    const known = approved.get(tool.name);
    if (known?.hash === tool.hash) continue;
    const says = suspicionOf(tool);
    if (says !== null) held.push({ ...pinOf(tool), reason: "suspicious", says });
    else if (known !== undefined) held.push({ ...pinOf(tool), reason: "changed", says: changesOf(known, tool) });
    else if (before.tools === null) first.push(pinOf(tool));
    else held.push({ ...pinOf(tool), reason: "new", says: "the server did not have it when its tools were approved" });
  }
  const listed = new Set(live.map(({ name }) => name));
  const tools = before.tools ?? first;
  return { tools, held_back: held, missing: tools.filter(({ name }) => !listed.has(name)).map(({ name }) => name) };
}

/** The pins with a held-back tool approved, as it stands there. */
export function approved({ tools, held_back, missing }: Pins, names: ReadonlySet<string>): Pins {
  const now = held_back.filter(({ name }) => names.has(name)).map(pinOf);
  const kept = (tools ?? []).filter(({ name }) => !names.has(name));
  return {
    tools: [...kept, ...now].sort((one, other) => (one.name < other.name ? -1 : 1)),
    held_back: held_back.filter(({ name }) => !names.has(name)),
    missing: (missing ?? []).filter((name) => !names.has(name)),
  };
}

/** The tools that may be offered and called. */
export function offered({ tools, held_back, missing = [], allowed_tools }: Pins & Pick<RegisteredHand, "allowed_tools">): readonly PinnedTool[] {
  const out = new Set([...held_back.map(({ name }) => name), ...missing]);
  return (tools ?? []).filter(({ name }) => !out.has(name) && (allowed_tools === null || allowed_tools.includes(name)));
}

/** Why a tool may not be called now, for whoever asked for it; null: it may. P2 */
export function refusalOf(record: RegisteredHand, tool: string): string | null {
  const of = `tool ${JSON.stringify(tool)} of the hand ${JSON.stringify(record.name)}`;
  if (record.allowed_tools !== null && !record.allowed_tools.includes(tool)) return `${of} is not among the tools that its registration allows`;
  const held = record.held_back.find(({ name }) => name === tool);
  if (held !== undefined) return `${of} is held back until somebody approves it (${held.reason}${held.says === undefined ? "" : `: ${held.says}`})`;
  if (record.missing?.includes(tool)) return `${of} is gone: its server no longer lists it`;
  if (record.tools !== null && !record.tools.some(({ name }) => name === tool)) return `${of} was never approved`;
  return null;
}

/** Do two records of pins say the same? */
export function isSame(one: Pins, other: Pins): boolean {
  const text = ({ tools, held_back, missing = [] }: Pins): string =>
    JSON.stringify([tools?.map(({ name, hash }) => [name, hash]) ?? null, held_back.map(({ name, hash, reason }) => [name, hash, reason]), missing]);
  return text(one) === text(other);
}

const pinOf = ({ name, description, input_schema, annotations, hash }: ServerTool): PinnedTool => ({
  name,
  description,
  input_schema: { ...input_schema },
  ...(annotations === undefined ? {} : { annotations: { ...annotations } }),
  hash,
});

/** Which parts of a definition are others now; the hash is over more than is shown (title, output schema). */
function changesOf(before: PinnedTool, now: ServerTool): string {
  const parts = (["description", "input_schema", "annotations"] as const).filter((part) => textOf(before[part]) !== textOf(now[part]));
  return `its ${parts.length === 0 ? "definition" : parts.join(", ")} changed since it was approved`;
}

/** Whatever the order of names. */
const textOf = (value: unknown): string =>
  JSON.stringify(value ?? null, (_name, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([one], [other]) => (one < other ? -1 : 1)))
      : inner,
  );
