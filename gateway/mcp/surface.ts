// What a door shows to MCP clients: tools, resources, prompts and completion, as plain objects. The door serves any surface to both eras.
//
//   F1  A handler is written once, in the style of the stateless era: to ask the client something it returns `ask(...)`, and is run again from its
//       start with the answers and the state that it gave along. Nothing of a question lives in a process.
//   F2  What is shown is the same for the life of the process, in one order; it is built once.

import type {
  CallToolResult,
  ClientCapabilities,
  GetPromptResult,
  InputRequest,
  LoggingLevel,
  Prompt,
  ReadResourceResult,
  Resource,
  ResourceTemplateType,
  Tool,
} from "@modelcontextprotocol/server";
import { z } from "zod";
import { META } from "../../hands/hand.ts";
import type { Caller } from "./caller.ts";

export interface CallContext {
  readonly caller: Caller;
  readonly era: "handshake" | "stateless";
  readonly client: ClientCapabilities;
  /** Aborts when the client called the request off. */
  readonly signal: AbortSignal;
  /** What the client said to the questions of the run before, by their keys; null in the first run. F1 */
  readonly answers: Readonly<Record<string, unknown>> | null;
  /** What `ask` was given as state in the run before. F1 */
  readonly state: unknown;
  readonly progressToken: string | number | undefined;
  /** The same when this request is sent again, and no other's; null: that can't be told. */
  readonly requestKey: string | null;
  /** Reaches a client that asked for it. Dropped rather than waited for when the client reads too slowly. */
  progress(progress: number, total?: number, message?: string): void;
  log(level: LoggingLevel, data: unknown, logger?: string): void;
  /** Ends the connection that the answer was to go by; the client resumes elsewhere (handshake era only). */
  hangUp(): void;
}

/** Questions to the client; with none, the state alone makes another round. */
export interface Ask {
  readonly type: "ask";
  readonly questions: Readonly<Record<string, InputRequest>>;
  readonly state: unknown;
}
export const ask = (questions: Ask["questions"], state: unknown): Ask => ({ type: "ask", questions, state });
export const isAsk = (value: object): value is Ask => "type" in value && value.type === "ask" && "questions" in value;

export interface ToolEntry {
  readonly definition: Tool;
  readonly scope: Scope;
  /** Reads the arguments, then runs; arguments that do not fit are an error result that says which. */
  call(args: unknown, context: CallContext): Promise<CallToolResult | Ask>;
}

/** What a token must allow; an API key allows all. */
export const SCOPES = ["sessions:read", "sessions:write", "hands:read", "hands:write"] as const;
/** To use hands at their own doors. */
export const HAND_SCOPES = ["hands:use"] as const;
export type Scope = (typeof SCOPES)[number] | (typeof HAND_SCOPES)[number];

export interface PromptEntry {
  readonly definition: Prompt;
  get(args: Readonly<Record<string, string>>, context: CallContext): Promise<GetPromptResult | Ask>;
}

export interface Resources {
  readonly templates: readonly ResourceTemplateType[];
  list(cursor: string | undefined, context: CallContext): Promise<{ readonly resources: Resource[]; readonly nextCursor?: string }>;
  /** Null: there is none, or it is not this caller's. */
  read(uri: string, context: CallContext): Promise<ReadResourceResult | Ask | null>;
  /** May this caller follow it? An unknown one and another's answer alike. */
  mayWatch(uri: string, caller: Caller): Promise<boolean>;
  /** Calls `changed` whenever the resource changed, until `signal` aborts. */
  watch(uri: string, changed: () => void, signal: AbortSignal): Promise<void>;
}

export interface Completion {
  readonly ref: { readonly type: "ref/prompt"; readonly name: string } | { readonly type: "ref/resource"; readonly uri: string };
  readonly name: string;
  readonly value: string;
}

export interface Surface {
  readonly info: { readonly name: string; readonly title?: string; readonly version: string };
  readonly instructions?: string;
  readonly tools: readonly ToolEntry[];
  /** Where tools are not the same for all: this caller's, in place of `tools`. */
  toolsOf?(caller: Caller): Promise<readonly ToolEntry[]>;
  readonly resources?: Resources;
  readonly prompts?: readonly PromptEntry[];
  complete?(completion: Completion, context: CallContext): Promise<{ readonly values: readonly string[]; readonly total?: number }>;
  /** Tells of lists that changed, where they can. */
  onListChanged?(hear: (list: "tools" | "prompts" | "resources") => void): () => void;
}

const Keyed = z.looseObject({ [META.toolUseId]: z.string().min(1).max(256) });

/** What a client itself calls this request, so that it may send it again; else what its era knows it by. */
export function requestKeyOf(meta: unknown, own: string | null): string | null {
  const given = Keyed.safeParse(meta).data?.[META.toolUseId];
  return given === undefined ? own : `given ${given}`;
}

type Shape = z.ZodObject;

/** A tool with its schemas. What `run` gives as an object is the structured content and, as text, the content. */
export function tool<Input extends Shape>(spec: {
  readonly name: string;
  readonly title?: string;
  readonly description: string;
  readonly input: Input;
  readonly output?: Shape;
  readonly annotations?: Tool["annotations"];
  readonly scope?: Scope;
  run(args: z.infer<Input>, context: CallContext): Promise<CallToolResult | Ask>;
}): ToolEntry {
  const { name, title, description, input, output, annotations, scope = "sessions:write", run } = spec;
  return {
    scope,
    definition: {
      name,
      ...(title !== undefined && { title }),
      description,
      inputSchema: schemaOf(input, "input"),
      ...(output && { outputSchema: schemaOf(output, "output") }),
      ...(annotations && { annotations }),
    },
    async call(args, context) {
      const read = input.safeParse(args);
      if (!read.success) return failure(`The arguments do not fit: ${z.prettifyError(read.error)}`);
      return run(read.data, context);
    },
  };
}

function schemaOf(schema: Shape, io: "input" | "output"): Tool["inputSchema"] {
  const { $schema: _, ...json } = z.toJSONSchema(schema, { io });
  return { ...json, type: "object" } as Tool["inputSchema"];
}

export const failure = (says: string): CallToolResult => ({ content: [{ type: "text", text: says }], isError: true });

/** An answer for programs and for models: the object, and the same as text. */
export function answer(structured: Readonly<Record<string, unknown>>, text = JSON.stringify(structured)): CallToolResult {
  return { content: [{ type: "text", text }], structuredContent: { ...structured } };
}
