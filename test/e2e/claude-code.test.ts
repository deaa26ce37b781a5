// Claude Code's own client, as people have it: against a scripted model it opens our door, lists the tools, starts a session and reads its result; over
// HTTP, and by the stdio bridge. It is no package of ours: TEST_CLAUDE_CODE says where its program is.

import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { peoplesServers } from "../support/mcp/people.ts";
import { Program, ROOT } from "../support/process.ts";
import { CLAUDE_CODE, needs } from "../support/real-part.ts";
import { Stage } from "./cases/stage.ts";

const RUN_MS = 90_000;
/** Its name for our server, and so in front of each tool's name. */
const SERVER = "manyhands";
const WORDS = "the answer from inside";
const KEY = "any-key-for-the-scripted-model";

const Said = z.looseObject({ type: z.literal("result"), is_error: z.boolean(), result: z.string() });

let stage: Stage;
let folder: string;
let start: object;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-claude-"));
  stage = await Stage.open({ env: { MANYHANDS_MCP_SERVERS_FILE: await peoplesServers(folder) } });
  const [agent, environment] = await Promise.all([
    stage.client.beta.agents.create({ name: "Inner", model: "scripted-model" }),
    stage.client.beta.environments.create({ name: "inner" }),
  ]);
  start = { agent_id: agent.id, environment_id: environment.id, message: `say: ${WORDS}`, wait_seconds: 45 };
});
afterAll(async () => {
  await stage.close();
  await rm(folder, { recursive: true, force: true });
});

/** Ways to the door, as its users write them into `.mcp.json`. */
const overHttp = (path = "/mcp") => ({
  type: "http",
  url: `${stage.installation.url}${path}`,
  headers: { Authorization: `Bearer ${stage.installation.apiKey}` },
});
const overStdio = () => ({
  command: process.execPath,
  args: [join(ROOT, "dist/gateway/cli.js"), "mcp", "--url", `${stage.installation.url}/mcp`],
  env: { MANYHANDS_API_KEY: stage.installation.apiKey },
});

interface Call {
  readonly name: string;
  readonly server: () => object;
  readonly tool: string;
  readonly input: () => object;
  readonly gives: string;
  /** Another tool of the server, which Claude Code has to know by itself. */
  readonly other: string;
}
const calls: readonly Call[] = [
  { name: "a session over HTTP", server: () => overHttp(), tool: "create_session", input: () => start, gives: WORDS, other: "archive_session" },
  { name: "a session by the bridge", server: overStdio, tool: "create_session", input: () => start, gives: WORDS, other: "archive_session" },
  {
    name: "a hand at its own door",
    server: () => overHttp("/mcp/hands/everything"),
    tool: "echo",
    input: () => ({ message: "hi" }),
    gives: "Echo: hi",
    other: "get-sum",
  },
];

/** Runs its command in a folder and an environment of its own; gives its standard output. */
async function claude(server: object, args: readonly string[]): Promise<string> {
  const home = await mkdtemp(join(folder, "home-"));
  const project = join(home, "project");
  await mkdir(project);
  const config = join(project, ".mcp.json");
  await writeFile(config, JSON.stringify({ mcpServers: { [SERVER]: server } }));
  const env = {
    PATH: process.env.PATH ?? "",
    HOME: home,
    CLAUDE_CONFIG_DIR: join(home, ".claude"),
    ANTHROPIC_BASE_URL: stage.model.url,
    ANTHROPIC_API_KEY: KEY,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    DISABLE_AUTOUPDATER: "1",
    DISABLE_TELEMETRY: "1",
  };
  const all = [...args, "--mcp-config", config, "--strict-mcp-config"];
  await using program = new Program(spawn(CLAUDE_CODE, all, { cwd: project, env, stdio: ["pipe", "pipe", "pipe"] }));
  program.closePipe();
  const { code } = await program.exit(RUN_MS);
  const said = [program.stdout, ...program.lines.map((line) => JSON.stringify(line))].join("\n").trim();
  expect(code, `${said}\n${program.stderr}`).toBe(0);
  return said;
}

needs("claude")("Claude Code", () => {
  test.each(calls)("uses $name", async ({ server, tool, input, gives, other }) => {
    const seen = stage.model.requests().at(-1)?.n ?? 0;
    const prompt = `call mcp__${SERVER}__${tool}: ${JSON.stringify(input())}\necho: it gave`;
    const options = ["--output-format", "json", "--max-turns", "4", "--model", "claude-sonnet-4-5"];
    const said = Said.parse(JSON.parse(await claude(server(), ["-p", prompt, "--allowedTools", `mcp__${SERVER}__${tool}`, ...options])));
    expect(said.is_error, said.result).toBe(false);
    expect(said.result).toContain("it gave");
    expect(said.result).toContain(gives);
    // It knows our list: it tells its model of a tool that the prompt did not name.
    const asked = stage.model.requests({ since: seen });
    expect(asked.filter(({ rejected }) => rejected !== undefined)).toEqual([]);
    expect(JSON.stringify(asked.map(({ body }) => body))).toContain(`mcp__${SERVER}__${other}`);
  });
});
