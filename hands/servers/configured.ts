// The servers that the operator of a hand host named: a file in the form that MCP clients share (`{"mcpServers": {name: {command, args, env} | {url}}}`).
// It alone says which commands are run here; whoever asks for a server gives a name.

import { readFile } from "node:fs/promises";
import { z } from "zod";
import type { Command } from "./children.ts";

const SERVERS_MAX = 200;

const Server = z.union([
  z
    .strictObject({
      type: z.literal("stdio").optional(),
      command: z.string().min(1),
      args: z.array(z.string()).default([]),
      env: z.record(z.string().regex(/^[^=\0]+$/), z.string()).default({}),
      cwd: z.string().min(1).optional(),
    })
    .transform(({ command, args, env, cwd }) => ({ type: "command" as const, command: { command, args, env, cwd: cwd ?? null } satisfies Command })),
  z
    .strictObject({ type: z.enum(["http", "sse"]).optional(), url: z.url({ protocol: /^https?$/ }) })
    .transform(({ type, url }) => ({ type: "url" as const, url: new URL(url), isSse: type === "sse" })),
]);
const File = z.strictObject({ mcpServers: z.record(z.string().min(1).max(255), Server) });

export type ConfiguredServer = z.infer<typeof Server>;
export type ConfiguredServers = ReadonlyMap<string, ConfiguredServer>;

/** Throws an error whose message is one line for the operator and repeats nothing of the file: it may hold credentials. */
export async function readServers(path: string): Promise<ConfiguredServers> {
  let given: unknown;
  try {
    given = JSON.parse(await readFile(path, "utf8"));
  } catch (error) {
    const why = error instanceof SyntaxError ? "it is not JSON" : "it can't be read";
    throw new Error(`MANYHANDS_MCP_SERVERS_FILE: ${path}: ${why}`, { cause: error });
  }
  const read = File.safeParse(given);
  if (!read.success) throw new Error(`MANYHANDS_MCP_SERVERS_FILE: ${path}: ${read.error.issues[0]?.path.join(".") ?? "the file"} is not valid`);
  const servers = Object.entries(read.data.mcpServers);
  if (servers.length > SERVERS_MAX) throw new Error(`MANYHANDS_MCP_SERVERS_FILE: ${path}: more than ${SERVERS_MAX} servers`);
  return new Map(servers);
}
