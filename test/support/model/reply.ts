// What a step comes to for one request: the blocks of the answer, its usage and its stop reason.

import { randomBytes } from "node:crypto";
import { blocksOf, type ModelRequest, type ModelTool, wordsOf } from "./request.ts";
import { redact, sign } from "./rules.ts";
import type { Action, Step } from "./script.ts";

export type ReplyBlock =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "thinking"; readonly thinking: string; readonly signature: string }
  | { readonly type: "redacted_thinking"; readonly data: string }
  | {
      readonly type: "tool_use";
      readonly id: string;
      readonly name: string;
      readonly input: Readonly<Record<string, unknown>>;
    };

export interface Reply {
  readonly id: string;
  readonly model: string;
  readonly content: readonly ReplyBlock[];
  /** By index of a block: its input's JSON as it is streamed, where that is not the input's own (cut off). */
  readonly cutInputs: ReadonlyMap<number, string>;
  readonly stopReason: string;
  readonly usage: Usage;
}

interface Usage {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cache_read_input_tokens: number;
  readonly cache_creation_input_tokens: number;
}

/** Four characters count as one token. */
const CHARS_A_TOKEN = 4;
const FALLBACK: Step = { actions: [{ type: "text", text: "ok" }] };

export function makeId(prefix: string): string {
  return `${prefix}_${randomBytes(12).toString("hex")}`;
}

/** How many tokens the request counts as. */
export function countTokens(request: ModelRequest): number {
  return Math.ceil(JSON.stringify([request.system, request.tools, request.messages]).length / CHARS_A_TOKEN);
}

/** Plays a step; without one, a forced tool is called with the smallest input that fits, and otherwise the answer is "ok". */
export function playStep(step: Step | null, request: ModelRequest): Reply {
  const played = step ?? withoutScript(request);
  const cutInputs = new Map<number, string>();
  const content = (played.actions.length === 0 ? FALLBACK : played).actions.map((action, at) => {
    if (action.type === "truncated_call") cutInputs.set(at, action.json);
    return act(action, request);
  });
  const outputChars = content.reduce((sum, block) => sum + sizeOf(block), 0);
  const hasCalls = content.some((block) => block.type === "tool_use");
  return {
    id: makeId("msg"),
    model: request.model,
    content,
    cutInputs,
    stopReason: played.stop ?? (hasCalls ? "tool_use" : "end_turn"),
    usage: {
      input_tokens: Number(played.usage?.input ?? countTokens(request)),
      output_tokens: Number(played.usage?.output ?? Math.max(1, Math.ceil(outputChars / CHARS_A_TOKEN))),
      cache_read_input_tokens: Number(played.usage?.cache_read ?? 0),
      cache_creation_input_tokens: Number(played.usage?.cache_write ?? 0),
    },
  };
}

function act(action: Action, request: ModelRequest): ReplyBlock {
  switch (action.type) {
    case "text":
      return text(action.text);
    case "echo":
      return text(`${action.prefix === "" ? "" : `${action.prefix} `}${given(request)}`);
    case "dump":
      return text(JSON.stringify(dump(action.what, request)));
    case "thinking":
      return { type: "thinking", thinking: action.text, signature: sign(action.text) };
    case "redacted_thinking":
      return { type: "redacted_thinking", data: redact(action.text) };
    case "unsigned_thinking":
      return { type: "thinking", thinking: action.text, signature: "" };
    case "call":
    case "truncated_call": {
      const name = pick(action.name, request.tools ?? []);
      if (name === null) return text(`scripted model: no offered tool fits ${action.name}`);
      return { type: "tool_use", id: makeId("toolu"), name, input: action.type === "call" ? action.input : {} };
    }
  }
}

/** An empty block would be refused when it comes back. */
const text = (words: string): ReplyBlock => ({ type: "text", text: words === "" ? "(nothing)" : words });

/** The results that were just given, or the user's last words. */
function given(request: ModelRequest): string {
  const last = request.messages.findLast((message) => message.role === "user");
  if (last === undefined) return "";
  const blocks = blocksOf(last);
  const results = blocks.flatMap((block) => (block.type === "tool_result" ? [block] : []));
  if (results.length === 0) return wordsOf(blocks);
  return results.map((result) => `${result.is_error === true ? "[error] " : ""}${wordsOf(result.content)}`).join("\n");
}

function dump(what: string, request: ModelRequest): unknown {
  if (what === "tools") return (request.tools ?? []).map((tool) => tool.name);
  if (what === "system") return request.system ?? null;
  if (what === "messages") return request.messages.length;
  return what === "model" ? request.model : null;
}

function pick(pattern: string, tools: readonly ModelTool[]): string | null {
  if (!pattern.includes("*")) return pattern;
  const parts = pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  const fits = new RegExp(`^${parts.join(".*")}$`);
  return tools.find((tool) => fits.test(tool.name))?.name ?? null;
}

function sizeOf(block: ReplyBlock): number {
  if (block.type === "text") return block.text.length;
  if (block.type === "thinking") return block.thinking.length;
  return block.type === "tool_use" ? JSON.stringify(block.input).length : block.data.length;
}

function withoutScript(request: ModelRequest): Step {
  const { tools = [], tool_choice: choice } = request;
  const forced = choice?.type === "any" ? tools[0] : choice?.type === "tool" ? tools.find((tool) => tool.name === choice.name) : undefined;
  if (forced !== undefined) {
    const input = smallest(forced.input_schema, 0);
    return { actions: [{ type: "call", name: forced.name, input: isObject(input) ? input : {} }] };
  }
  const schema = request.output_config?.format?.schema;
  return schema === undefined ? FALLBACK : { actions: [{ type: "text", text: JSON.stringify(smallest(schema, 0)) }] };
}

const SCHEMA_DEPTH_MAX = 8;

/** The smallest value that fits a JSON schema, as far as schemas are usually written. */
function smallest(schema: unknown, depth: number): unknown {
  if (!isObject(schema) || depth > SCHEMA_DEPTH_MAX) return {};
  if ("const" in schema) return schema.const;
  if ("default" in schema) return schema.default;
  if (Array.isArray(schema.enum)) return schema.enum[0];
  const variants = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(variants)) return smallest(variants[0], depth + 1);
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "array") return [];
  if (type === "string") return "ok";
  if (type === "integer" || type === "number") return schema.minimum ?? 0;
  if (type === "boolean") return true;
  if (type === "null") return null;
  const properties = isObject(schema.properties) ? schema.properties : {};
  const required = Array.isArray(schema.required) ? schema.required.map(String) : [];
  return Object.fromEntries(required.map((name) => [name, smallest(properties[name], depth + 1)]));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
