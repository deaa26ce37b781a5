// `manyhands vault connect` as an operator types it: real programs, a real authorization server, and an opener that stands in for the desktop's.

import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { freePort } from "../support/free-port.ts";
import { browse, type PersonServer, startPersonServer } from "../support/oauth/person-server.ts";
import { type Program, startProgram } from "../support/process.ts";
import { until } from "../support/until.ts";

const EXIT_MS = 60_000;

let server: PersonServer;
let folder: string;
let env: Record<string, string>;
const programs: Program[] = [];

function run(...args: string[]): Program {
  const program = startProgram("gateway/cli", { args, env });
  programs.push(program);
  return program;
}

beforeAll(async () => {
  server = await startPersonServer();
  folder = await mkdtemp(join(tmpdir(), "manyhands-connect-"));
  // Writes down what it was started with, and opens nothing.
  await writeFile(
    join(folder, "xdg-open"),
    `#!/bin/sh\nprintf '%s\\n' "$*" > "${folder}/opened.part"\nmv "${folder}/opened.part" "${folder}/opened"\n`,
  );
  await chmod(join(folder, "xdg-open"), 0o755);
  env = {
    PATH: `${folder}:${process.env.PATH ?? ""}`,
    MANYHANDS_PORT: String(await freePort()),
    MANYHANDS_DATA_DIR: join(folder, "data"),
    MANYHANDS_INTERNAL_HOSTS: server.host,
  };
  await run("start").logged("launcher.ready");
});
afterAll(async () => {
  for (const program of programs) await program[Symbol.asyncDispose]();
  await server.close();
  await rm(folder, { recursive: true, force: true });
});

test("the browser is opened at an address without the state, and the vault has the tokens in the end", async () => {
  const command = run("vault", "connect", server.mcpUrl);
  await until(() => /\/auth\?/.test(command.stdout), { timeoutMs: EXIT_MS });
  const printed = new URL(/http\S+\/auth\?\S+/.exec(command.stdout)?.[0] ?? "");
  const opened = (await until(() => readFile(join(folder, "opened"), "utf8").catch(() => null), { timeoutMs: EXIT_MS })).trim();
  expect(opened).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/[\w-]+$/);
  expect(opened).not.toContain(printed.searchParams.get("state"));

  const page = await browse(opened);
  expect(page.text).toContain("Connected.");
  expect((await command.exit(EXIT_MS)).code).toBe(0);
  expect(command.stdout).toMatch(/is credential vcrd_\w+ of vault vlt_\w+\./);
  // The code came by the address of the last page.
  const code = new URL(page.url).searchParams.get("code") ?? "none";
  expect(`${command.stdout}${command.stderr}${JSON.stringify(programs.flatMap(({ lines }) => lines))}`).not.toContain(code);
});

test("what can't be done ends with 1 and says what to do; what was misspelt ends with 2", async () => {
  const nothing = run("vault", "connect", "http://127.0.0.1:9/mcp", "--no-browser");
  expect((await nothing.exit(EXIT_MS)).code).toBe(1);
  expect(nothing.stdout).toContain("Not connected. ");
  expect(nothing.stdout).toContain("MANYHANDS_INTERNAL_HOSTS");
  const misspelt = run("vault", "connect", server.mcpUrl, "--vualt", "x");
  expect((await misspelt.exit(EXIT_MS)).code).toBe(2);
  expect(misspelt.stderr).toContain("usage: manyhands vault connect");
});
