// A server's whole list of tools: every page of it, once each, and within bounds.
//
//   L1  A cursor that was seen before ends the walk; so does a limit of pages, tools or bytes. Each is noted.
//   L2  Sorted by name, so that a server which shuffles its list is told of in the same words.
//   L3  The hash of a tool is over its whole definition as the server gave it; the hash of the list is over those.

import { createHash } from "node:crypto";
import { z } from "zod";
import type { ServerNote, ServerTool, ServerTools } from "../hand.ts";
import { cut } from "../tools/cap.ts";
import { DESCRIPTION_CHARS_MAX, ENTRIES_MAX, LIST_BYTES_MAX, NOTES_MAX, PAGES_MAX, SCHEMA_DEPTH_MAX, TOOLS_MAX } from "./limits.ts";
import { faultIn } from "./param-headers.ts";
import { acceptable, depthOf } from "./schema.ts";

const NAME_CHARS_MAX = 255;
const NOTE_CHARS_MAX = 300;

const Page = z.looseObject({ tools: z.array(z.unknown()).catch([]), nextCursor: z.string().optional().catch(undefined) });
const Tool = z.looseObject({
  name: z.string().min(1).max(NAME_CHARS_MAX),
  title: z.string().optional().catch(undefined),
  description: z.string().optional().catch(undefined),
  inputSchema: z.unknown().optional(),
  annotations: z.record(z.string(), z.unknown()).optional().catch(undefined),
});

type Ready = Extract<ServerTools, { type: "ready" }>;

/** Walks all pages. `page` asks for one. `isModern`: arguments are to be shown in headers, where a schema marks them. `keep` is given the input schema of
 *  each tool that is read, as the server gave it. L1 */
export async function readList(
  page: (cursor: string | undefined) => Promise<unknown>,
  isModern = false,
  keep?: (name: string, schema: unknown) => void,
): Promise<Ready> {
  const found = new Map<string, z.infer<typeof Tool>>();
  const notes: ServerNote[] = [];
  const seen = new Set<string>();
  let cursor: string | undefined;
  let bytes = 0;
  let entries = 0;
  const isFull = () => found.size >= TOOLS_MAX || bytes > LIST_BYTES_MAX || entries > ENTRIES_MAX;
  const stop = (keyword: string, says: string) => notes.push({ tool: "", keyword, what: "left_out", says });
  for (let pages = 1; ; pages += 1) {
    const { tools, nextCursor } = Page.parse(await page(cursor));
    for (const given of tools) {
      // What is past the bound is not even looked at.
      if (isFull()) break;
      entries += 1;
      if (depthOf(given) > SCHEMA_DEPTH_MAX) {
        notes.push(tooDeep(given));
        continue;
      }
      const tool = Tool.safeParse(given);
      if (!tool.success) stop("name", "a tool without a usable name");
      else if (!found.has(tool.data.name)) {
        bytes += Buffer.byteLength(JSON.stringify(tool.data));
        if (found.size < TOOLS_MAX && bytes <= LIST_BYTES_MAX) found.set(tool.data.name, tool.data);
      }
    }
    if (isFull()) {
      stop("tools", `the list has more than ${TOOLS_MAX} tools, ${ENTRIES_MAX} entries or ${LIST_BYTES_MAX} bytes; the rest was left out`);
      break;
    }
    if (nextCursor === undefined) break;
    if (seen.has(nextCursor)) {
      stop("nextCursor", "the list's cursor came again; the walk ended there");
      break;
    }
    if (pages >= PAGES_MAX) {
      stop("nextCursor", `the list has more than ${PAGES_MAX} pages; the rest was left out`);
      break;
    }
    seen.add(nextCursor);
    cursor = nextCursor;
  }
  const read = [...found.values()].sort((one, other) => (one.name < other.name ? -1 : 1)).map((tool) => toolOf(tool, notes, isModern)); // L2
  const tools = read.filter((tool) => tool !== null);
  for (const { name } of tools) keep?.(name, found.get(name)?.inputSchema);
  return { type: "ready", hash: digest([tools.map(({ name, hash }) => [name, hash]), notes]), tools, notes: bounded(notes) };
}

/** Judged before anything goes through it level by level. */
function tooDeep(given: unknown): ServerNote {
  const name = typeof given === "object" && given !== null && "name" in given && typeof given.name === "string" ? given.name : "";
  return {
    tool: cut(name.toWellFormed(), NAME_CHARS_MAX),
    keyword: "inputSchema",
    what: "left_out",
    says: `its definition is more than ${SCHEMA_DEPTH_MAX} levels deep`,
  };
}

function toolOf(given: z.infer<typeof Tool>, notes: ServerNote[], isModern: boolean): ServerTool | null {
  const { name, title, description, inputSchema, annotations } = given;
  const fault = isModern ? faultIn(inputSchema) : null;
  if (fault !== null) {
    notes.push({ tool: name, keyword: "x-mcp-header", what: "left_out", says: fault });
    return null;
  }
  const reading = acceptable(inputSchema);
  if (reading.type === "refused") {
    notes.push({ tool: name, keyword: reading.keyword, what: "left_out", says: reading.says });
    return null;
  }
  if (reading.keyword !== null)
    notes.push({ tool: name, keyword: reading.keyword, what: "changed", says: `its input schema was put in another form (${reading.keyword})` });
  const told = [description ?? title ?? "", reading.words].filter((text) => text !== "").join("\n\n");
  return {
    name,
    description: cut(told.toWellFormed(), DESCRIPTION_CHARS_MAX),
    input_schema: reading.schema,
    ...(annotations === undefined ? {} : { annotations }),
    hash: digest(given),
  };
}

function bounded(notes: readonly ServerNote[]): readonly ServerNote[] {
  const kept = notes.slice(0, NOTES_MAX).map((note) => ({ ...note, says: cut(note.says.toWellFormed(), NOTE_CHARS_MAX) }));
  const left = notes.length - kept.length;
  return left === 0 ? kept : [...kept, { tool: "", keyword: "tools", what: "left_out", says: `and ${left} more of this kind` }];
}

/** Of a value, whatever the order of its names. L3 */
function digest(value: unknown): string {
  return createHash("sha256").update(canonical(value)).digest("hex").slice(0, 32);
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const fields = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return `{${fields
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, inner]) => `${JSON.stringify(name)}:${canonical(inner)}`)
    .join(",")}}`;
}
