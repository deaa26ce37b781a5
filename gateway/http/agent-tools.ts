// The tools of an agent (contract §9): what may be configured, what is left out resolved, and the rules between tools and MCP servers.
//
//   G1  What is saved is resolved: every toolset has a default, every named tool its own setting.
//   G2  Each MCP server has one toolset and each toolset a server.
//   G3  What is not there yet is refused by its name, never dropped.

import { z } from "zod";
import { HAND_ADDRESS } from "../../hands/registry.ts";
import { HAND_TOOLS, TOOLSET_NAMES } from "../../hands/toolset.ts";
import type { AgentTool, ToolConfig } from "../../session-store/events/log.ts";
import { invalid } from "../answer.ts";
import { fetchSettings, refuseBoth, resolvedWeb, searchSettings } from "./web-settings.ts";

const BUILT_IN = new Set<string>(TOOLSET_NAMES);

const TOOLS_MAX = 256;
const SERVERS_MAX = 20;
const SCHEMA_PROPERTIES_MAX = 1000;

/** A field of the contract that only its absence or null is taken for. G3 */
export const absent = () => z.null({ error: "is not supported" }).optional();

const policy = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("always_allow") }),
  z.strictObject({ type: z.literal("always_ask") }),
  z.strictObject({ type: z.literal("auto") }),
]);
const setting = { enabled: z.boolean().nullish(), permission_policy: policy.nullish() };
const defaultConfig = z.strictObject(setting).nullish();

const ofHand = {
  allowed_domains: absent(),
  blocked_domains: absent(),
  max_content_tokens: absent(),
  user_location: absent(),
  url_sources: absent(),
};
const named = { type: z.string().nullish(), ...setting };
const builtInConfig = z.discriminatedUnion("name", [
  z.strictObject({ name: z.enum(HAND_TOOLS), ...named, ...ofHand }),
  z.strictObject({ name: z.literal("web_fetch"), ...named, ...ofHand, ...fetchSettings }).superRefine(refuseBoth),
  z.strictObject({ name: z.literal("web_search"), ...named, ...ofHand, ...searchSettings }).superRefine(refuseBoth),
]);

const toolset = z.strictObject({
  type: z.literal("agent_toolset_20260401"),
  default_config: defaultConfig,
  configs: z.array(builtInConfig).max(TOOLSET_NAMES.length).nullish(),
});
const mcpToolset = z.strictObject({
  type: z.literal("mcp_toolset"),
  mcp_server_name: z.string().min(1).max(255),
  default_config: defaultConfig,
  configs: z
    .array(z.strictObject({ name: z.string().min(1).max(128), ...setting }))
    .max(TOOLS_MAX)
    .nullish(),
});
const customTool = z.strictObject({
  type: z.literal("custom"),
  name: z.string().regex(/^[A-Za-z0-9_-]{1,128}$/, "must be 1 to 128 letters, digits, underscores and hyphens"),
  description: z.string().min(1),
  input_schema: z.record(z.string(), z.unknown()),
});

export const Tools = z.array(z.discriminatedUnion("type", [toolset, mcpToolset, customTool])).max(TOOLS_MAX);
export type Tools = z.infer<typeof Tools>;

/** An address, or a registered hand by its name. */
const isServerUrl = (text: string) => isWebUrl(text) || HAND_ADDRESS.test(text);
const isWebUrl = (text: string) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);

export const McpServers = z
  .array(
    z.strictObject({
      type: z.literal("url"),
      name: z.string().min(1).max(255),
      url: z.string().max(2048).refine(isServerUrl, "must be an http or https URL, or `hand:` and the name of a registered hand"),
    }),
  )
  .max(SERVERS_MAX);
export type McpServers = z.infer<typeof McpServers>;

const ALLOW: ToolConfig = { enabled: true, permission_policy: { type: "always_allow" } };
const ASK: ToolConfig = { enabled: true, permission_policy: { type: "always_ask" } };

/** Fills in what was left out, and refuses what can't be. `path` is where the tools stand in the request. G1 */
export function resolveTools(tools: Tools, path = "tools"): AgentTool[] {
  const taken = new Set<string>();
  const take = (what: string, at: string) => {
    if (taken.has(what)) throw invalid(`${at}: is given twice`);
    taken.add(what);
  };
  return tools.map((tool, index) => resolveTool(tool, `${path}.${index}`, take));
}

function resolveTool(tool: Tools[number], at: string, take: (what: string, at: string) => void): AgentTool {
  switch (tool.type) {
    case "agent_toolset_20260401":
      take("toolset", at);
      refuseOddConfigs(tool.configs ?? [], at);
      return { type: tool.type, ...resolved(tool, ALLOW, (config) => ({ type: config.name, ...resolvedWeb(config) })) };
    case "mcp_toolset":
      take(`mcp:${tool.mcp_server_name}`, `${at}.mcp_server_name`);
      refuseOddConfigs(tool.configs ?? [], at);
      return { type: tool.type, mcp_server_name: tool.mcp_server_name, ...resolved(tool, ASK, () => ({})) };
    case "custom":
      if (BUILT_IN.has(tool.name)) throw invalid(`${at}.name: is the name of a built-in tool`);
      if (tool.name.startsWith("mcp__")) throw invalid(`${at}.name: must not start with "mcp__"`);
      take(`custom:${tool.name}`, `${at}.name`);
      refuseOddSchema(tool.input_schema, `${at}.input_schema`);
      return { type: tool.type, name: tool.name, description: tool.description, input_schema: tool.input_schema };
  }
}

/** G2. Names are unique among the servers. */
export function refuseUnmatched(tools: readonly AgentTool[], servers: McpServers, under = ""): void {
  const names = new Set<string>();
  const used = new Set(tools.flatMap((tool) => (tool.type === "mcp_toolset" ? [tool.mcp_server_name] : [])));
  for (const [index, { name }] of servers.entries()) {
    if (names.has(name)) throw invalid(`${under}mcp_servers.${index}.name: is given twice`);
    names.add(name);
    if (!used.has(name)) throw invalid(`${under}mcp_servers.${index}: no \`mcp_toolset\` in \`tools\` uses this server`);
  }
  for (const [index, tool] of tools.entries())
    if (tool.type === "mcp_toolset" && !names.has(tool.mcp_server_name))
      throw invalid(`${under}tools.${index}.mcp_server_name: \`mcp_servers\` declares no server of this name`);
}

type Setting = z.infer<z.ZodObject<typeof setting>>;
interface Toolset<Config> {
  readonly default_config?: Setting | null | undefined;
  readonly configs?: readonly Config[] | null | undefined;
}

function resolved<Config extends Setting & { readonly name: string }>(
  { default_config, configs }: Toolset<Config>,
  usual: ToolConfig,
  more: (config: Config) => object,
) {
  const base = settingOf(default_config ?? {}, usual);
  return {
    default_config: base,
    configs: (configs ?? []).map((config) => ({ name: config.name, ...more(config), ...settingOf(config, base) })),
  };
}

function settingOf(given: Setting, usual: ToolConfig): ToolConfig {
  return { enabled: given.enabled ?? usual.enabled, permission_policy: given.permission_policy ?? usual.permission_policy };
}

function refuseOddConfigs(configs: readonly { readonly name: string; readonly type?: string | null | undefined }[], at: string): void {
  const names = new Set<string>();
  for (const [index, { name, type }] of configs.entries()) {
    if (names.has(name)) throw invalid(`${at}.configs.${index}.name: is given twice`);
    if (type != null && type !== name) throw invalid(`${at}.configs.${index}.type: must equal the tool's name`);
    names.add(name);
  }
}

function refuseOddSchema(schema: Readonly<Record<string, unknown>>, at: string): void {
  if (schema.type !== "object") throw invalid(`${at}.type: must be "object"`);
  for (const word of ["oneOf", "anyOf", "allOf"]) if (word in schema) throw invalid(`${at}.${word}: is not permitted at the top level`);
  const { properties, required } = schema;
  if (required != null && !(Array.isArray(required) && required.every((name) => typeof name === "string")))
    throw invalid(`${at}.required: must be a list of property names`);
  if (properties != null) {
    if (typeof properties !== "object" || Array.isArray(properties)) throw invalid(`${at}.properties: must be an object`);
    const names = Object.keys(properties);
    if (names.length > SCHEMA_PROPERTIES_MAX) throw invalid(`${at}.properties: at most ${SCHEMA_PROPERTIES_MAX}`);
    if (!names.every((name) => /^[A-Za-z0-9_.-]{1,64}$/.test(name)))
      throw invalid(`${at}.properties: names must be 1 to 64 letters, digits, underscores, dots and hyphens`);
  }
  if (holdsReference(schema)) throw invalid(`${at}: \`$ref\` is not permitted`);
}

/** Depth is bounded by the body's (R2). A property that is called `$ref` holds a schema; a reference holds a string. */
function holdsReference(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  if (Array.isArray(value)) return value.some(holdsReference);
  return Object.entries(value).some(([name, inner]) => (name === "$ref" && typeof inner === "string") || holdsReference(inner));
}
