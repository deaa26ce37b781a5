// No process of a server outlives its owner: not the end of its session, not a hard kill of the hand host, however many wrappers stand between.
//
// modelcontextprotocol/typescript-sdk#2002, supercorp-ai/supergateway#160, NousResearch/hermes-agent#50169

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { HandsClient } from "../../../hands/client.ts";
import type { HandRef, Holder } from "../../../hands/hand.ts";
import { type Fence, mintSession } from "../../../session-store/ids.ts";
import { makePlace, type Place } from "../../drivers/hand-host.ts";
import { closeHands, openCommand, textOf, wrapped } from "../../support/mcp/hand.ts";
import { until } from "../../support/until.ts";

const never = new AbortController().signal;
const PROGRAM = fileURLToPath(new URL("../../../dist/test/support/mcp/stdio.js", import.meta.url));

let folder: string;
let place: Place;
let hands: HandsClient;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "orphans-"));
  const file = join(folder, "servers.json");
  // The words at the end of its command line tell this test's processes from all others.
  const inner = `"${process.execPath}" "${PROGRAM}" deaf ${folder}; true`;
  const mcpServers = { deaf: { command: "/bin/sh", args: ["-c", `sh -c '${inner}'; true`, folder], env: { GIVEN: "yes" } } };
  writeFileSync(file, JSON.stringify({ mcpServers }));
  place = makePlace({ MANYHANDS_MCP_SERVERS_FILE: file, OPERATORS_SECRET: "not for children" });
  hands = place.client();
});
afterEach(async () => {
  await closeHands();
  await place.clean();
  rmSync(folder, { recursive: true, force: true });
});

/** The processes whose command line holds these words. */
const processes = (words: string): readonly string[] =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(words);
      } catch {
        return false;
      }
    });
const gone = () => until(() => processes(folder).length === 0, { timeoutMs: 20_000, what: () => `no process of ${folder}: ${processes(folder)}` });

async function use(tool = "environment"): Promise<{ readonly holder: Holder; readonly ref: HandRef; readonly text: string }> {
  const holder: Holder = { session: mintSession(), fence: 1 as Fence };
  const ref = await hands.provision(holder, { server: { name: "mine", transport: { type: "configured", server: "deaf" } } }, never);
  const outcome = await hands.execute(holder, ref, { id: "a", name: tool, input: {} }, false, never);
  expect(processes(folder).length).toBeGreaterThanOrEqual(3);
  return { holder, ref, text: textOf(outcome) };
}

test("the end of a session ends its server, wrappers and all; it has nothing of our environment", async () => {
  const host = await place.start();
  const { holder, text } = await use();
  const environment = JSON.parse(text) as Record<string, string>;
  expect(Object.keys(environment).filter((name) => name.startsWith("MANYHANDS") || name === "OPERATORS_SECRET")).toEqual([]);
  expect(environment.GIVEN).toBe("yes");
  await hands.release(holder.session, host.id, never);
  await gone();
});

test("a hand host that stops ends its servers", async () => {
  const host = await place.start();
  await use();
  expect(await host.end("SIGTERM")).toBe(0);
  await gone();
});

test("what a killed hand host left is ended by the next one, and the hand works again", async () => {
  const first = await place.start();
  const { holder, ref } = await use();
  await first.end("SIGKILL");
  const left = processes(folder);
  expect(left.length).toBeGreaterThan(0);
  await place.start();
  await gone();
  const again = await hands.execute(holder, ref, { id: "b", name: "echo", input: { text: "hi" } }, false, never);
  expect(textOf(again)).toBe("hi");
  expect(processes(folder).some((pid) => left.includes(pid))).toBe(false);
  await place.last().end("SIGTERM");
  await gone();
});

test("six reconnects leave one", async () => {
  const { hand, call } = openCommand(wrapped("plain"));
  const pids: string[] = [];
  for (let round = 0; round < 6; round += 1) {
    pids.push(textOf(await call("pid")));
    if (round < 5) await hand.stop("again");
  }
  await until(() => pids.filter((pid) => processes("stdio.js").includes(pid)).length === 1, { what: "one of six is left" });
  await hand.stop("the test is over");
  await until(() => pids.every((pid) => !processes("stdio.js").includes(pid)), { what: "none is left" });
});
