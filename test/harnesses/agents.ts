// Agents for tests, and the tools that they are given.

import type { AgentSnapshot, AgentTool } from "../../session-store/events/log.ts";

export const TOOLSET = {
  type: "agent_toolset_20260401",
  default_config: { enabled: true, permission_policy: { type: "always_allow" } },
  configs: [],
} as const satisfies AgentTool;
export const LOOK_UP: AgentTool = { type: "custom", name: "look_up", description: "Looks up.", input_schema: { type: "object" } };

export function toolset(configs: Record<string, "always_allow" | "always_ask" | "auto" | "off">): AgentTool {
  return {
    ...TOOLSET,
    configs: Object.entries(configs).map(([name, policy]) => ({
      name,
      enabled: policy !== "off",
      permission_policy: { type: policy === "off" ? "always_allow" : policy },
    })),
  };
}

export function agent(tools: readonly AgentTool[], more: Partial<AgentSnapshot> = {}): AgentSnapshot {
  return {
    type: "agent",
    id: "agent_1",
    version: 1,
    name: "Tester",
    description: null,
    model: { id: "scripted-model" },
    system: "Be brief.",
    tools,
    mcp_servers: [],
    skills: [],
    multiagent: null,
    ...more,
  };
}

/** An agent's servers by name and address, each with a toolset of this policy. */
export function servers(urls: Readonly<Record<string, string>>, policy: "always_allow" | "always_ask" = "always_allow") {
  const tools = Object.keys(urls).map(
    (name): AgentTool => ({
      type: "mcp_toolset",
      mcp_server_name: name,
      default_config: { enabled: true, permission_policy: { type: policy } },
      configs: [],
    }),
  );
  return { tools, mcp_servers: Object.entries(urls).map(([name, url]) => ({ type: "url" as const, name, url })) };
}
