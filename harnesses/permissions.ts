// May a call run, must a person be asked, or is it off (contract §10)? Pure.

import type { AgentToolUse } from "../session-store/events/brain.ts";
import type { AgentSnapshot, ToolConfig } from "../session-store/events/log.ts";
import type { ToolDescriptor } from "./harness.ts";

export type Verdict =
  | { readonly type: "custom" }
  | {
      readonly type: "tool";
      readonly permission: AgentToolUse["evaluated_permission"];
      readonly evaluation?: NonNullable<AgentToolUse["evaluation"]>;
    };

const DENIED: Verdict = { type: "tool", permission: "deny" };

/** `tool`: as it was offered to the model. An unknown or disabled one is denied without an evaluation. */
export function judge(agent: AgentSnapshot, tool: ToolDescriptor | undefined): Verdict {
  if (!tool) return DENIED;
  if (tool.source === "custom") return { type: "custom" };
  const { mcp } = tool;
  const toolset = agent.tools.find((one) =>
    mcp ? one.type === "mcp_toolset" && one.mcp_server_name === mcp.server : one.type === "agent_toolset_20260401",
  );
  if (!toolset || toolset.type === "custom") return DENIED;
  const config = configOf(toolset, mcp?.name ?? tool.name);
  if (!config.enabled) return DENIED;
  switch (config.permission_policy.type) {
    case "always_allow":
      return { type: "tool", permission: "allow", evaluation: { type: "always_allow" } };
    case "always_ask":
      return { type: "tool", permission: "ask", evaluation: { type: "always_ask" } };
    case "auto":
      return { type: "tool", permission: "ask", evaluation: { type: "auto", evaluated_permission: { type: "ask", reason_code: "indeterminate" } } };
  }
}

/** The settings of one tool of a toolset: its own, else the toolset's. */
export function configOf(
  toolset: { readonly default_config: ToolConfig; readonly configs: readonly (ToolConfig & { readonly name: string })[] },
  name: string,
): ToolConfig {
  return toolset.configs.find((config) => config.name === name) ?? toolset.default_config;
}
