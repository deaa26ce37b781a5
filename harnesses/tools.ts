// The tools of an agent as the model is told of them: the same list, in the same order, until the agent's configuration changes. Those of MCP servers
// stand at the end, as the log has them.

import { TOOLSET } from "../hands/toolset.ts";
import type { AgentSnapshot, AgentTool, ServerRef } from "../session-store/events/log.ts";
import type { ToolDescriptor } from "./harness.ts";
import { KnownServers } from "./known-servers.ts";
import { LOG_URL } from "./log-tools.ts";
import { configOf } from "./permissions.ts";
import { WEB_TOOLS } from "./web.ts";

const NONE = new KnownServers();

/** Disabled tools are left out; what a hand runs comes in the toolset's own order. */
export function toolsOf(agent: AgentSnapshot, known: KnownServers = NONE): readonly ToolDescriptor[] {
  return [...ownTools(agent), ...serverTools(agent, known)];
}

/** The agent's servers, each with the toolset that uses it. */
export function serversOf(agent: AgentSnapshot): readonly (ServerRef & { readonly toolset: McpToolset })[] {
  return agent.mcp_servers.flatMap(({ name, url }) => {
    const toolset = agent.tools.find((tool) => tool.type === "mcp_toolset" && tool.mcp_server_name === name);
    return toolset?.type === "mcp_toolset" ? [{ name, url, toolset }] : [];
  });
}

type McpToolset = Extract<AgentTool, { type: "mcp_toolset" }>;

function serverTools(agent: AgentSnapshot, known: KnownServers): readonly ToolDescriptor[] {
  const servers = new Map(serversOf(agent).flatMap((server) => (known.listOf(server) === null ? [] : [[server.name, server] as const])));
  return known.tools.flatMap(({ name, description, input_schema, server, original }): ToolDescriptor[] => {
    const found = servers.get(server);
    if (!found || !configOf(found.toolset, original).enabled) return [];
    // What a server says of its tools are claims: none runs beside another one of its server, and none is run again. The log itself is no claim.
    const isLog = found.url === LOG_URL;
    return [{ name, description, input_schema, isReadOnly: isLog, isIdempotent: isLog, source: "mcp", mcp: { server, name: original } }];
  });
}

function ownTools(agent: AgentSnapshot): readonly ToolDescriptor[] {
  return agent.tools.flatMap((tool): ToolDescriptor[] => {
    switch (tool.type) {
      case "agent_toolset_20260401":
        return [
          ...TOOLSET.filter(({ name }) => configOf(tool, name).enabled).map((one) => ({ ...one, source: "hand" as const })),
          ...WEB_TOOLS.filter(({ name }) => tool.configs.some((config) => config.name === name && config.enabled)),
        ];
      case "custom": {
        const { name, description, input_schema } = tool;
        return [{ name, description, input_schema, isReadOnly: false, isIdempotent: false, source: "custom" }];
      }
      default:
        return [];
    }
  });
}
