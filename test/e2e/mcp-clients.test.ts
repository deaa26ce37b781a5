// Clients that people use, as they are: the Inspector's command line, mcp-remote, and stdio clients of both lines by our own bridge.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client as ModernClient } from "@modelcontextprotocol/client";
import { StdioClientTransport as ModernStdio } from "@modelcontextprotocol/client/stdio";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { ROOT, startNode, startProgram } from "../support/process.ts";
import { until } from "../support/until.ts";
import { type CaseSession, Stage, TOOLSET } from "./cases/stage.ts";

const INSPECTOR = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
const REMOTE = "node_modules/mcp-remote/dist/proxy.js";
const RUN_MS = 60_000;

let stage: Stage;
let session: CaseSession;
let door: string;
let key: string;

beforeAll(async () => {
  stage = await Stage.open();
  door = `${stage.installation.url}/mcp`;
  key = stage.installation.apiKey;
  session = await stage.session([TOOLSET]);
  await session.turn("say: hello there");
});
afterAll(() => stage.close());

describe.each(["legacy", "modern"])("the Inspector's command line, %s era", (era) => {
  const inspect = async (...args: string[]) => {
    const all = [
      INSPECTOR,
      "--cli",
      door,
      "--transport",
      "http",
      "--protocol-era",
      era,
      "--header",
      `Authorization: Bearer ${key}`,
      "--format",
      "json",
      ...args,
    ];
    await using program = startNode(all);
    const { code } = await program.exit(RUN_MS);
    const said = [program.stdout, ...program.lines.map((line) => JSON.stringify(line))].join("\n");
    expect(code, `${said}\n${program.stderr}`).toBe(0);
    return said;
  };

  test("lists the tools, calls one and reads a session", async () => {
    expect(await inspect("--method", "tools/list")).toContain("send_message");
    expect(await inspect("--method", "tools/call", "--tool-name", "find_sessions")).toContain(session.id);
    expect(await inspect("--method", "resources/read", "--uri", `session://${session.id}`)).toContain("hello there");
  });
});

/** What a stdio server is started with. */
const bridge = () => ({
  command: process.execPath,
  args: ["dist/gateway/cli.js", "mcp", "--url", door],
  env: { PATH: process.env.PATH ?? "", MANYHANDS_API_KEY: key },
  cwd: ROOT,
});
const remote = () => ({
  command: process.execPath,
  args: [REMOTE, door, "--transport", "http-only", "--allow-http", "--header", `Authorization: Bearer ${key}`],
  env: { PATH: process.env.PATH ?? "", HOME: process.env.HOME ?? "" },
  cwd: ROOT,
});

interface Started {
  readonly command: string;
  readonly args: string[];
  readonly env: Record<string, string>;
  readonly cwd: string;
}
type Stdio = Client | ModernClient;
const clients: [string, () => Promise<Stdio>][] = [
  ["the bridge, by a client of the handshake era", () => handshakeClient(bridge())],
  ["the bridge, by a client of the stateless era", () => statelessClient(bridge())],
  ["mcp-remote, by a client of the handshake era", () => handshakeClient(remote())],
];

async function handshakeClient(server: Started): Promise<Client> {
  const client = new Client({ name: "test", version: "1" }, { capabilities: {} });
  await client.connect(new StdioClientTransport({ ...server, stderr: "ignore" }));
  return client;
}
async function statelessClient(server: Started): Promise<ModernClient> {
  const client = new ModernClient({ name: "test", version: "1" }, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  await client.connect(new ModernStdio({ ...server, stderr: "ignore" }));
  return client;
}

describe.each(clients)("%s", (_what, connect) => {
  test("a turn with progress, a session read, and a clean end", async () => {
    const client = await connect();
    const told: (string | undefined)[] = [];
    const message = `call bash: {"command":"echo by stdio"}\n---\necho: it said\n(${session.nonce})`;
    const call = { name: "send_message", arguments: { session_id: session.id, message, wait_seconds: 50 } };
    const onprogress = (each: { message?: string | undefined }) => void told.push(each.message);
    const result = client instanceof Client ? await client.callTool(call, undefined, { onprogress }) : await client.callTool(call, { onprogress });
    const { reply } = z.looseObject({ reply: z.string() }).parse(result.structuredContent);
    expect(reply).toContain("by stdio");
    expect(told).toContain("The agent uses bash.");
    const read = await client.readResource({ uri: `session://${session.id}` });
    expect(JSON.stringify(read.contents)).toContain("hello there");
    await client.close();
  });
});

describe("the bridge", () => {
  const ping = (id: number) => JSON.stringify({ jsonrpc: "2.0", id, method: "ping" });
  const hello = JSON.stringify({
    jsonrpc: "2.0",
    id: "hello",
    method: "initialize",
    params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "t", version: "1" } },
  });
  const start = (url: string) => startProgram("gateway/cli", { args: ["mcp", "--url", url], env: { MANYHANDS_API_KEY: key } });
  const answered = (program: ReturnType<typeof start>, id: unknown) => until(() => program.lines.find((line) => line.id === id));

  test("goes on after the gateway was killed, and ends with 0 when standard input closes", async () => {
    await using program = start(door);
    program.type(hello);
    expect(await answered(program, "hello")).toMatchObject({ result: { protocolVersion: "2025-06-18" } });
    await stage.restart("node");
    program.type(ping(1));
    expect(await answered(program, 1)).toEqual({ jsonrpc: "2.0", id: 1, result: {} });
    program.closePipe();
    expect((await program.exit()).code).toBe(0);
    expect(program.stderr).not.toContain(key);
  });

  test("takes a batch apart where the revision has batches, and refuses it elsewhere", async () => {
    const batch = `[${ping(1)},${ping(2)}]`;
    await using old = start(door);
    old.type(hello.replace("2025-06-18", "2025-03-26"));
    await answered(old, "hello");
    old.type(batch);
    for (const id of [1, 2]) expect(await answered(old, id)).toEqual({ jsonrpc: "2.0", id, result: {} });
    await using newer = start(door);
    newer.type(hello);
    await answered(newer, "hello");
    newer.type(batch);
    expect(await answered(newer, null)).toMatchObject({ error: { code: -32_600, message: expect.stringContaining("has no batches") } });
  });

  test("sends this installation's key to its own address alone", async () => {
    const keys = await mkdtemp(join(tmpdir(), "manyhands-bridge-"));
    await writeFile(join(keys, "api.key"), "mh_own-key-canary-0123\n");
    const to = (url: string) => startProgram("gateway/cli", { args: ["mcp", "--url", url], env: { MANYHANDS_KEYS_DIR: keys, MANYHANDS_PORT: "1" } });
    await using foreign = to("http://other.invalid:1/mcp");
    expect((await foreign.exit()).code).toBe(2);
    expect(foreign.stderr).toContain("MANYHANDS_API_KEY is missing");
    expect(foreign.stderr).not.toContain("canary");
    await using own = to("http://localhost:1/mcp");
    own.type(hello);
    expect(await answered(own, "hello")).toMatchObject({ error: { code: -32_000 } });
    own.closePipe();
    expect((await own.exit()).code).toBe(0);
    await rm(keys, { recursive: true });
  });

  test("says to each request that the door can't be reached", async () => {
    await using program = start("http://127.0.0.1:1/mcp");
    program.type(hello);
    program.type("not a message");
    expect(await answered(program, "hello")).toMatchObject({ error: { code: -32_000 } });
    expect(await answered(program, null)).toMatchObject({ error: { code: -32_700 } });
    program.closePipe();
    expect((await program.exit()).code).toBe(0);
  });

  test("with a key that is not valid gives the door's answer", async () => {
    await using program = startProgram("gateway/cli", { args: ["mcp", "--url", door], env: { MANYHANDS_API_KEY: "a-key-of-nobody-at-all" } });
    program.type(hello);
    expect(await answered(program, "hello")).toMatchObject({ error: { message: expect.stringContaining("The API key is missing or not valid.") } });
  });
});
