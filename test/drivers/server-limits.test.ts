// A hand host that comes to the end of what it may start: more processes, more threads, more file descriptors. The limits are the system's own.
//
// The rest of the case "a server that dies in a call" is in test/e2e/cases.

import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { HandsClient } from "../../hands/client.ts";
import type { HandRef, Holder, Outcome } from "../../hands/hand.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";
import { FRESH, textOf } from "../support/mcp/hand.ts";
import { RawServer, tool } from "../support/mcp/raw.ts";
import { allowProcesses, endProcesses, LIMITABLE } from "../support/process-limit.ts";
import { HAND_KEY, makePlace, type Place } from "./hand-host.ts";

const never = new AbortController().signal;
const PROGRAM = fileURLToPath(new URL("../../dist/test/support/mcp/stdio.js", import.meta.url));
const AT_LIMITS = fileURLToPath(new URL("../../dist/test/support/mcp/no-descriptors.js", import.meta.url));
const SOON_MS = 2_000;

let folder: string;
let place: Place;
let hands: HandsClient;
let http: RawServer;
let count = 0;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "limits-"));
  const file = join(folder, "servers.json");
  writeFileSync(file, JSON.stringify({ mcpServers: { child: { command: process.execPath, args: [PROGRAM, "plain", folder] } } }));
  place = makePlace({ MANYHANDS_MCP_SERVERS_FILE: file, MANYHANDS_MCP_INTERNAL_HOSTS: "*", ...LIMITABLE });
  hands = place.client();
  http = await RawServer.start({
    tools: [tool("echo", { inputSchema: { type: "object", required: ["text"], properties: { text: { type: "string" } } } })],
  });
});
afterEach(async () => {
  await place.clean();
  await http.close();
  rmSync(folder, { recursive: true, force: true });
});

interface Session {
  readonly holder: Holder;
  readonly ref: HandRef;
}
async function open(of: "child" | "http" | "sandbox"): Promise<Session> {
  const holder: Holder = { session: mintSession(), fence: 1 as Fence };
  const transport = of === "http" ? { type: "url" as const, url: http.url } : { type: "configured" as const, server: "child" };
  const wanted = of === "sandbox" ? { environment_id: "env_1" } : { server: { name: `the-${of}`, transport } };
  return { holder, ref: await hands.provision(holder, wanted, never) };
}
async function call({ holder, ref }: Session, name: string, input: object = { text: "hi" }): Promise<Outcome> {
  count += 1;
  return hands.execute(holder, ref, { id: `call-${count}`, name, input: { ...input } }, false, never);
}
async function soon<T>(failing: Promise<T>): Promise<T> {
  const since = performance.now();
  const came = await failing;
  expect(performance.now() - since).toBeLessThan(SOON_MS);
  return came;
}
const children = () =>
  readdirSync("/proc").filter((pid) => {
    try {
      return /^\d+$/.test(pid) && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(folder);
    } catch {
      return false;
    }
  });

test("a host that may start no process more says so at once, and everything that runs already goes on", async () => {
  const { child, url } = await place.start();
  const [running, starved, web] = [await open("child"), await open("child"), await open("http")];
  expect(textOf(await call(running, "echo"))).toBe("hi");
  const before = children();
  await endProcesses(child.pid ?? 0);
  expect(textOf(await soon(call(starved, "echo")))).toMatch(/^failed: MCP server "the-child": it could not be started: EAGAIN; it was not run$/);
  expect(textOf(await call(running, "echo"))).toBe("hi");
  // No thread can be had to judge its arguments either, if none was there: then the server judges.
  expect(textOf(await call(web, "echo"))).toBe("echo: hi");
  // The way through the door of a hand ends the same.
  const hello = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "t", version: "1" } };
  const relaying = fetch(`${url}/mcp/servers/child`, {
    method: "POST",
    headers: { authorization: `Bearer ${HAND_KEY}`, "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params: hello }),
  });
  const relayed = await soon(relaying.then((answer) => answer.json()));
  expect(relayed).toMatchObject({ id: 1, error: { message: "The server ended before it answered: it could not be started: EAGAIN." } });
  expect(children()).toEqual(before);
  allowProcesses(child.pid ?? 0);
  expect(textOf(await call(starved, "echo"))).toBe("hi");
});

test("a host that has no room for a thread judges no arguments and starts no shell, and goes on", async () => {
  const { child } = await place.start();
  const [web, sandbox] = [await open("http"), await open("sandbox")];
  await hands.listTools(web.holder, web.ref, FRESH, never);
  await endProcesses(child.pid ?? 0);
  expect(textOf(await call(web, "echo"))).toBe("echo: hi");
  expect(textOf(await soon(call(sandbox, "bash", { command: "echo hi" })))).toMatch(/^failed: /);
  allowProcesses(child.pid ?? 0);
  expect(textOf(await call(sandbox, "bash", { command: "echo hi" }))).toContain("hi");
  expect(textOf(await call(web, "echo", {}))).toMatch(/text/);
  expect(child.exitCode).toBe(null);
});

test("a child that gets no pipes has ended, in words, and is started when there is room again", async () => {
  const { stdout } = await promisify(execFile)("prlimit", ["--nofile=64", "--", process.execPath, AT_LIMITS], { timeout: 20_000 });
  expect(JSON.parse(stdout)).toEqual({ first: "it could not be started: EMFILE", second: "it exited with code 0" });
});
