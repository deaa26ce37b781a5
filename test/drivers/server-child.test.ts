// A server that is started here: what is started is the operator's word alone, with next to no environment; it goes whole, also when it crashes; and what
// it says on its standard error is for the operator.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { request } from "undici";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import type { HandsClient } from "../../hands/client.ts";
import type { HandRef, Holder } from "../../hands/hand.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";
import { closeHands, openCommand, stdio, textOf } from "../support/mcp/hand.ts";
import { stateless } from "../support/mcp.ts";
import { HAND_KEY, makePlace, type Place, until } from "./hand-host.ts";

const never = new AbortController().signal;
const PROGRAM = fileURLToPath(new URL("../../dist/test/support/mcp/stdio.js", import.meta.url));

let folder: string;
let place: Place;
let hands: HandsClient;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "child-"));
  const file = join(folder, "servers.json");
  const server = { command: process.execPath, args: [PROGRAM, "plain", folder], env: { GIVEN: "yes" } };
  writeFileSync(file, JSON.stringify({ mcpServers: { mine: server } }));
  place = makePlace({
    MANYHANDS_MCP_SERVERS_FILE: file,
    MANYHANDS_MCP_INTERNAL_HOSTS: "*",
    OPERATORS_SECRET: "not for children",
    NODE_OPTIONS: "--no-warnings",
  });
  await place.start();
  hands = place.client();
});
afterAll(async () => {
  await place.clean();
  rmSync(folder, { recursive: true, force: true });
});
afterEach(async () => {
  await closeHands();
  for (const { session } of await hands.instances(place.last().id, never)) await hands.release(session, place.last().id, never);
  await until(() => commandLines().length === 0);
});

const commandLines = (): readonly string[][] =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").slice(0, -1);
      } catch {
        // It ended meanwhile.
        return [];
      }
    })
    .filter((words) => words.includes(folder));

async function use(server = "mine"): Promise<{ readonly call: (tool: string, input?: object) => Promise<string>; readonly ref: HandRef }> {
  const holder: Holder = { session: mintSession(), fence: 1 as Fence };
  const ref = await hands.provision(holder, { server: { name: "docs", transport: { type: "configured", server } } }, never);
  let n = 0;
  return {
    ref,
    call: async (tool, input = {}) => {
      n += 1;
      return textOf(await hands.execute(holder, ref, { id: `${n}`, name: tool, input }, false, never));
    },
  };
}

test("its command line is the operator's, whatever a caller sends", async () => {
  const { call } = await use();
  await call("echo", { text: "hi", args: ["--inspect"], env: { A: "b" }, command: "/bin/sh" });
  expect(commandLines()).toEqual([[process.execPath, PROGRAM, "plain", folder]]);
});

test("its environment is what the operator gave, and what a program needs to start at all", async () => {
  const { call } = await use();
  const environment = JSON.parse(await call("environment")) as Record<string, string>;
  const { GIVEN, HAND_OWNER, ...rest } = environment;
  expect([GIVEN, typeof HAND_OWNER]).toEqual(["yes", "string"]);
  expect(Object.keys(rest).filter((name) => !/^(PATH|HOME|USER|LOGNAME|SHELL|LANG|LC_[A-Z]+|TERM|TMPDIR|TZ)$/.test(name))).toEqual([]);
});

const TRANSPORTS: [string, object][] = [
  ["a command", { type: "command", command: "/bin/sh", args: ["-c", "id"] }],
  ["a stdio server", { type: "stdio", command: "/bin/sh", args: [] }],
  ["arguments beside a name", { type: "configured", server: "mine", args: ["--evil"] }],
  ["an environment beside a name", { type: "configured", server: "mine", env: { NODE_OPTIONS: "--require=/tmp/evil.js" } }],
  ["a file's address", { type: "url", url: "file:///bin/sh" }],
];
test.each(TRANSPORTS)("%s in what is asked for is refused, and nothing starts", async (_what, transport) => {
  const session = mintSession();
  const reply = await stateless(
    `${place.last().url}/mcp`,
    { authorization: `Bearer ${HAND_KEY}` },
    {
      id: 1,
      method: "tools/call",
      params: { name: "provision", arguments: { holder: { session, fence: 1 }, resources: { server: { name: "docs", transport } } } },
    },
  );
  expect(reply.messages.at(-1)?.error?.code, reply.text).toBe(-32_602);
  expect(await hands.instances(place.last().id, never)).toEqual([]);
  expect(commandLines()).toEqual([]);
});

test.each(["../mine", "/bin/sh", "mine --evil", "__proto__", "constructor"])("the name %s is nobody's", async (name) => {
  const { call } = await use(name);
  expect(await call("echo")).toContain("nobody configured it at this hand host");
  expect(commandLines()).toEqual([]);
});

test("nobody starts one without the host's key", async () => {
  const { statusCode, body } = await request(`${place.last().url}/mcp`, {
    method: "POST",
    body: "{}",
    headers: { "content-type": "application/json" },
  });
  await body.dump();
  expect(statusCode).toBe(401);
});

test("what a child that crashed had started goes with it", async () => {
  const words = join(folder, "grandchild");
  const sleeper = `"${process.execPath}" -e "setInterval(() => {}, 1000)" "${words}"`;
  const command = `${sleeper} & setsid ${sleeper} & exec "${process.execPath}" "${PROGRAM}" plain`;
  const { call } = openCommand({ command: "/bin/sh", args: ["-c", command, "sh"] });
  const alive = () => readdirSync("/proc").filter((pid) => /^\d+$/.test(pid) && hasWord(pid, words)).length;
  await call("pid");
  await until(() => alive() === 2);
  expect(textOf(await call("exit"))).toMatch(/^unknown: /);
  await until(() => alive() === 0);
});

function hasWord(pid: string, word: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").includes(word);
  } catch {
    // It ended meanwhile.
    return false;
  }
}

test("its standard error is in no result, also not where it says why it ended", async () => {
  const talker = openCommand(stdio("talker"));
  const said = await Promise.all(["one", "two"].map((text) => talker.call("pid", { text: `stderr-canary ${text}` })));
  const exit = openCommand(stdio("exit"));
  const list = await exit.hand.listTools({ known: null, waitMs: 5_000, isFresh: true });
  const all = JSON.stringify([said, await exit.call("echo"), list, await talker.call("exit", { text: "stderr-canary three" })]);
  expect(all).not.toContain("canary");
  expect(all).not.toContain("no database");
  // The operator reads it in the log.
  expect(JSON.stringify(exit.logged)).toContain("no database");
});
