// The tools that say what there is to work with: agents, environments, harnesses. Hands have tools of their own.

import { z } from "zod";
import { AgentList } from "../../http/agent-schema.ts";
import { listAgents } from "../../http/agents.ts";
import type { Door } from "../../http/call.ts";
import { EnvironmentList } from "../../http/environment-schema.ts";
import { listEnvironments } from "../../http/environments.ts";
import { readQuery } from "../../http/query.ts";
import type { ToolEntry } from "../surface.ts";
import { answer, tool } from "../surface.ts";
import { ToolAsker } from "./asker.ts";

const paging = {
  limit: z.int().min(1).max(100).default(20),
  page: z.string().optional().describe("next_page of the answer before"),
};
const next_page = z.string().nullable();
const READING = { readOnlyHint: true, idempotentHint: true, openWorldHint: false };

const AgentShown = z.object({
  id: z.string(),
  name: z.string(),
  description: z.string().nullable(),
  version: z.number(),
  model: z.object({ id: z.string() }),
});
const EnvironmentShown = z.object({ id: z.string(), name: z.string(), description: z.string().nullable() });
const pageOf = <T extends z.ZodType>(item: T) => z.object({ data: z.array(item), next_page });

export function listTools(door: Door): readonly ToolEntry[] {
  const searchOf = ({ limit, page }: { limit: number; page?: string | undefined }) =>
    new URLSearchParams({ limit: String(limit), ...(page !== undefined && { page }) });
  return [
    tool({
      name: "list_agents",
      title: "List agents",
      description: "Lists the agents that a session can be started with: each is a model with instructions and tools.",
      input: z.object(paging),
      output: z.object({ agents: z.array(AgentShown), next_page }),
      scope: "sessions:read",
      annotations: READING,
      async run(args, { caller }) {
        const asker = new ToolAsker({ caller, path: "/v1/agents" });
        const found = pageOf(AgentShown).parse(await listAgents(door, asker, readQuery(AgentList, searchOf(args))));
        return answer({ agents: found.data, next_page: found.next_page });
      },
    }),
    tool({
      name: "list_environments",
      title: "List environments",
      description: "Lists the environments that a session can be started in: each says what its sandbox has and may reach.",
      input: z.object(paging),
      output: z.object({ environments: z.array(EnvironmentShown), next_page }),
      scope: "sessions:read",
      annotations: READING,
      async run(args, { caller }) {
        const asker = new ToolAsker({ caller, path: "/v1/environments" });
        const found = pageOf(EnvironmentShown).parse(await listEnvironments(door, asker, readQuery(EnvironmentList, searchOf(args))));
        return answer({ environments: found.data, next_page: found.next_page });
      },
    }),
    tool({
      name: "list_harnesses",
      title: "List harnesses",
      description: "Lists the harnesses of this installation: the programs that think for sessions.",
      input: z.object({}),
      output: z.object({ harnesses: z.array(z.object({ name: z.string() })) }),
      scope: "sessions:read",
      annotations: READING,
      async run() {
        // Loaded when it is asked for: a gateway that drives no session has no harness in its process.
        const { harnessNames } = await import("../../../harnesses/registry.ts");
        return answer({ harnesses: harnessNames().map((name) => ({ name })) });
      },
    }),
  ];
}
