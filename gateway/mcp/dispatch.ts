// From a request to what a surface has for it, the same for both eras.
//
//   D1  Parameters are read by a schema here; what does not fit is -32602, and no value is said back.
//   D2  What a caller's token does not allow is neither listed nor done.
//   D3  A tool that refuses or fails answers with an error result, which a model can act on; only a bug is a protocol error.
//   D4  Lists come in pages of PAGE; a cursor that is not ours is -32602.

import type { ServerCapabilities } from "@modelcontextprotocol/server";
import { z } from "zod";
import { REFUSALS, Refusal } from "../../session-store/refusal.ts";
import type { Caller } from "./caller.ts";
import { INVALID_PARAMS, METHOD_NOT_FOUND, noResource, RpcError } from "./rpc.ts";
import type { Ask, CallContext, PromptEntry, Scope, Surface, ToolEntry } from "./surface.ts";
import { failure } from "./surface.ts";

const PAGE = 100;
const URI_CHARS_MAX = 8_192;
const COMPLETIONS_MAX = 100;
const NAME = z.string().max(256);

const Paged = z.looseObject({ cursor: z.string().max(4_096).optional() });
const CallTool = z.looseObject({ name: NAME, arguments: z.record(z.string(), z.unknown()).optional() });
const WithUri = z.looseObject({ uri: z.string().max(URI_CHARS_MAX) });
const GetPrompt = z.looseObject({ name: NAME, arguments: z.record(z.string(), z.string()).optional() });
const Complete = z.looseObject({
  ref: z.union([z.looseObject({ type: z.literal("ref/prompt"), name: NAME }), z.looseObject({ type: z.literal("ref/resource"), uri: NAME })]),
  argument: z.looseObject({ name: NAME, value: z.string().max(4_096) }),
});

/** A surface, ready to be served. */
export class Catalogue {
  readonly surface: Surface;
  readonly capabilities: ServerCapabilities;
  readonly #tools: ReadonlyMap<string, ToolEntry>;
  readonly #prompts: ReadonlyMap<string, PromptEntry>;

  constructor(surface: Surface) {
    this.surface = surface;
    this.#tools = new Map(surface.tools.map((tool) => [tool.definition.name, tool]));
    this.#prompts = new Map((surface.prompts ?? []).map((prompt) => [prompt.definition.name, prompt]));
    const changing = surface.onListChanged ? { listChanged: true } : {};
    this.capabilities = {
      tools: changing,
      logging: {},
      ...(surface.resources && { resources: { subscribe: true, ...changing } }),
      ...(surface.prompts && { prompts: changing }),
      ...(surface.complete && { completions: {} }),
    };
  }

  /** The scopes that an operation takes, all at once. */
  scopesOf(method: string, params: Readonly<Record<string, unknown>>): readonly Scope[] {
    const tool = method === "tools/call" && typeof params.name === "string" ? this.#tools.get(params.name) : undefined;
    return tool ? [tool.scope] : [];
  }

  /** D1–D4 */
  async run(method: string, params: unknown, context: CallContext): Promise<object | Ask> {
    const { surface } = this;
    switch (method) {
      case "tools/list": {
        const tools = surface.toolsOf ? await surface.toolsOf(context.caller) : surface.tools;
        const shown = tools.filter(({ scope }) => context.caller.scopes.has(scope)).map(({ definition }) => definition);
        return pageOf("tools", shown, read(Paged, params).cursor);
      }
      case "tools/call":
        return this.#call(read(CallTool, params), context);
      case "prompts/list":
        return pageOf(
          "prompts",
          (surface.prompts ?? []).map(({ definition }) => definition),
          read(Paged, params).cursor,
        );
      case "prompts/get": {
        const { name, arguments: args = {} } = read(GetPrompt, params);
        const prompt = this.#prompts.get(name);
        if (!prompt) throw new RpcError(INVALID_PARAMS, "name: there is no such prompt");
        for (const { name: argument, required } of prompt.definition.arguments ?? [])
          if (required && args[argument] === undefined) throw new RpcError(INVALID_PARAMS, `arguments.${argument}: Field required`);
        return prompt.get(args, context);
      }
      case "completion/complete": {
        if (!surface.complete) break;
        const { ref, argument } = read(Complete, params);
        const { values, total = values.length } = await surface.complete({ ref, ...argument }, context);
        return { completion: { values: values.slice(0, COMPLETIONS_MAX), total, hasMore: total > Math.min(values.length, COMPLETIONS_MAX) } };
      }
    }
    const { resources } = surface;
    if (resources && method === "resources/list") return refusalsAsErrors(() => resources.list(read(Paged, params).cursor, context));
    if (resources && method === "resources/templates/list") return pageOf("resourceTemplates", resources.templates, read(Paged, params).cursor);
    if (resources && method === "resources/read") {
      const { uri } = read(WithUri, params);
      const found = await refusalsAsErrors(() => resources.read(uri, context));
      if (!found) throw noResource(uri, context.era);
      return found;
    }
    throw new RpcError(METHOD_NOT_FOUND, "There is no such method.", { status: 404 });
  }

  /** The URI of a subscription that this caller may have; an unknown one and another's are refused alike. */
  async watchable(params: unknown, caller: Caller): Promise<string> {
    const { uri } = read(WithUri, params);
    if (!(await this.surface.resources?.mayWatch(uri, caller))) throw noResource(uri, "handshake");
    return uri;
  }

  async #call({ name, arguments: args = {} }: z.infer<typeof CallTool>, context: CallContext): Promise<object | Ask> {
    const found = await this.surface.toolsOf?.(context.caller);
    const tool = found ? found.find(({ definition }) => definition.name === name) : this.#tools.get(name);
    if (!tool || !context.caller.scopes.has(tool.scope)) throw new RpcError(INVALID_PARAMS, "name: there is no such tool");
    try {
      return await tool.call(args, context);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      return failure(error.message);
    }
  }
}

export function read<T>(schema: z.ZodType<T>, params: unknown): T {
  const found = schema.safeParse(params ?? {});
  if (found.success) return found.data;
  const [issue] = found.error.issues;
  throw new RpcError(INVALID_PARAMS, `${issue?.path.join(".") || "params"}: is missing or not of its kind`);
}

async function refusalsAsErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    throw new RpcError(REFUSALS[error.code].status < 500 ? INVALID_PARAMS : -32_000, error.message);
  }
}

/** D4 */
function pageOf<T>(name: string, items: readonly T[], cursor: string | undefined): Record<string, unknown> {
  const from = cursor === undefined ? 0 : placeIn(cursor, items.length);
  const end = from + PAGE;
  return { [name]: items.slice(from, end), ...(end < items.length && { nextCursor: Buffer.from(`at ${end}`).toString("base64url") }) };
}

function placeIn(cursor: string, length: number): number {
  const at = Number(/^at (\d{1,9})$/.exec(Buffer.from(cursor, "base64url").toString("utf8"))?.[1] ?? Number.NaN);
  if (!(at > 0 && at < length && at % PAGE === 0)) throw new RpcError(INVALID_PARAMS, "cursor: is not one of this list");
  return at;
}
