// The tools of a server as they travel between hand host and client, and lie in a log.

import { z } from "zod";

const object = z.record(z.string(), z.unknown());

const ServerTool = z.object({
  name: z.string(),
  description: z.string(),
  input_schema: object,
  annotations: object.optional(),
  hash: z.string(),
});
const ServerNote = z.object({ tool: z.string(), keyword: z.string(), what: z.enum(["left_out", "changed"]), says: z.string() });

export const ServerTools = z.discriminatedUnion("type", [
  z.object({
    type: z.literal("ready"),
    hash: z.string(),
    tools: z.array(ServerTool),
    notes: z.array(ServerNote),
    server: z.object({ name: z.string(), version: z.string() }).optional(),
    protocolVersion: z.string().optional(),
  }),
  z.object({ type: z.literal("same") }),
  z.object({ type: z.literal("connecting") }),
  z.object({ type: z.literal("failed"), cause: z.enum(["connection", "authentication"]), message: z.string() }),
]);
