// Where an installation listens: on loopback alone unless it is told otherwise, and never open to callers without a key beyond it. Read from the kernel.

import { mkdtemp, readdir, readFile, readlink, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { stateless } from "../support/mcp.ts";
import { type Program, startProgram } from "../support/process.ts";

const ROLES = ["vault-proxy", "hands", "gateway"] as const;
const LISTENING = "0A";

let folder: string;
let programs: Program[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-listens-"));
  programs = [];
});
afterEach(async () => {
  for (const program of programs) await program[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

function start(env: Record<string, string> = {}): Program {
  const program = startProgram("gateway/cli", {
    args: ["start"],
    env: { MANYHANDS_PORT: "0", MANYHANDS_DATA_DIR: join(folder, "data"), ...env },
  });
  programs.push(program);
  return program;
}

async function ready(program: Program): Promise<{ readonly url: string; readonly pids: readonly number[] }> {
  const url = String((await program.logged("launcher.ready")).url);
  return { url, pids: [program.pid, ...ROLES.map((role) => Number(program.linesOf("child.started", { child: role }).at(-1)?.pid))] };
}

/** The addresses that these processes listen on: TCP, and UDP sockets of any kind. */
async function addressesOf(pids: readonly number[]): Promise<readonly string[]> {
  const mine = new Set<string>();
  for (const pid of pids)
    for (const name of await readdir(`/proc/${pid}/fd`)) {
      const target = await readlink(`/proc/${pid}/fd/${name}`).catch(() => "");
      const inode = /^socket:\[(\d+)\]$/.exec(target)?.[1];
      if (inode !== undefined) mine.add(inode);
    }
  const found: string[] = [];
  for (const table of ["tcp", "tcp6", "udp", "udp6"]) {
    const [, ...rows] = (await readFile(`/proc/net/${table}`, "utf8")).trim().split("\n");
    for (const row of rows) {
      const [, local = "", , state, , , , , , inode = ""] = row.trim().split(/\s+/);
      if (mine.has(inode) && (table.startsWith("udp") || state === LISTENING)) found.push(addressIn(local));
    }
  }
  return found;
}

/** The kernel writes an address as words in the machine's own order. */
function addressIn(local: string): string {
  const bytes = Buffer.from(local.split(":")[0] ?? "", "hex");
  const words = Array.from({ length: bytes.length / 4 }, (_, at) => bytes.subarray(at * 4, at * 4 + 4).reverse());
  const all = Buffer.concat(words);
  return all.length === 4 ? all.join(".") : (all.toString("hex").match(/.{4}/g) ?? []).join(":");
}

describe("with nothing set", () => {
  test("every socket of every program is a loopback one", async () => {
    const { pids } = await ready(start());
    const addresses = await addressesOf(pids);
    // Gateway, hand host and vault proxy: fewer would mean that the look was at the wrong processes.
    expect(addresses.length).toBeGreaterThanOrEqual(ROLES.length);
    expect([...new Set(addresses)]).toEqual(["127.0.0.1"]);
  });
});

describe("on all addresses", () => {
  test("only the gateway is reached, and by nobody without a key", async () => {
    const { url, pids } = await ready(start({ MANYHANDS_HOST: "0.0.0.0" }));
    expect((await addressesOf(pids)).filter((address) => address !== "127.0.0.1")).toEqual(["0.0.0.0"]);
    const list = { id: 1, method: "tools/list" };
    expect((await stateless(`${url}/mcp`, {}, list)).status).toBe(401);
    expect((await stateless(`${url}/mcp`, { authorization: "Bearer " }, list)).status).toBe(401);
    expect((await fetch(`${url}/v1/sessions`)).status).toBe(401);
  });

  test("calls without a key are refused before anything starts", async () => {
    const program = start({ MANYHANDS_HOST: "0.0.0.0", MANYHANDS_MCP_OPEN: "1" });
    expect((await program.exit()).code).toBe(2);
    expect(program.stderr).toContain("MANYHANDS_MCP_OPEN");
    expect(program.linesOf("child.started")).toEqual([]);
  });
});

test("an API key that is empty or too short to be one is no way around: the start is refused", async () => {
  const program = start({ MANYHANDS_HOST: "0.0.0.0", MANYHANDS_API_KEY: "short" });
  expect((await program.exit()).code).toBe(2);
  expect(program.stderr).toContain("MANYHANDS_API_KEY");
});
