// The tools of an agent as the model is told of them: the same list, in the same order, until the agent's configuration changes.

import { TOOLSET } from "../hands/toolset.ts";
import type { AgentSnapshot } from "../session-store/events/log.ts";
import type { ToolDescriptor } from "./harness.ts";
import { configOf } from "./permissions.ts";
import { WEB_TOOLS } from "./web.ts";

/** Disabled tools are left out; what a hand runs comes in the toolset's own order. */
export function toolsOf(agent: AgentSnapshot): readonly ToolDescriptor[] {
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
