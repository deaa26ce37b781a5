// What this product shows at its front door for MCP clients: sessions to start and steer, and what they are made from.

import type { Door } from "../../http/call.ts";
import { version } from "../../version.ts";
import type { Surface } from "../surface.ts";
import { handTools } from "./hand-tools.ts";
import { listTools } from "./list-tools.ts";
import { SessionResources } from "./resources.ts";
import { sessionTools } from "./session-tools.ts";
import { turnTools } from "./turn-tools.ts";

const INSTRUCTIONS =
  "Manyhands runs agents in durable sessions. Find an agent (list_agents) and an environment (list_environments), start a session " +
  "(create_session), talk to it (send_message). A turn may take long: when is_over is false, go on with wait_for_session and the `after` that you " +
  "were given. When waiting_for is not empty, answer that first (confirm_tool, submit_tool_result). Sessions are also resources: session://{id}.";

export function sessionsSurface(door: Door): Surface {
  const resources = new SessionResources(door);
  return {
    info: { name: "manyhands", title: "Manyhands", version: version() },
    instructions: INSTRUCTIONS,
    tools: [...sessionTools(door), ...turnTools(door), ...listTools(door), ...handTools(door)],
    resources,
    complete: (completion, context) => resources.complete(completion, context),
  };
}
