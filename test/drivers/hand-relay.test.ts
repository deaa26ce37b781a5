// A server over standard input and output, in a hand host of its own process, used through the door of its hand by clients of both eras.

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ClientEra, connectClient } from "../support/mcp/clients.ts";
import { makeServer } from "../support/mcp/full-old.ts";
import { FIRST, openRelayDoors, type RelayDoors, SECOND } from "../support/mcp/relay-doors.ts";
import { EVERYTHING, file } from "../support/mcp/server-relay.ts";
import { type SseServer, startSseServer } from "../support/mcp/sse-server.ts";
import { until } from "../support/until.ts";
import { HAND_KEY, makePlace, type Place } from "./hand-host.ts";

const ERAS: readonly ClientEra[] = ["handshake", "stateless"];
const STDIO = "dist/test/support/mcp/stdio.js";
let dir: string;
let place: Place;
let doors: RelayDoors;
let allowed: SseServer;
let internal: SseServer;

beforeAll(async () => {
  allowed = await startSseServer(() => makeServer([], false));
  internal = await startSseServer(() => makeServer([], false));
  dir = mkdtempSync(join(tmpdir(), "servers-"));
  const servers = join(dir, "servers.json");
  // The last word of its command line tells this test's children from all others.
  const script = (...args: readonly string[]) => ({ command: process.execPath, args: [...args, dir] });
  const mcpServers = {
    everything: script(file(EVERYTHING[0]), EVERYTHING[1]),
    plain: script(file(STDIO), "plain"),
    modern: script(file(STDIO), "modern"),
  };
  writeFileSync(servers, JSON.stringify({ mcpServers: { ...mcpServers, filed: { type: "sse", url: allowed.url } } }));
  place = makePlace({ MANYHANDS_MCP_SERVERS_FILE: servers, MANYHANDS_MCP_INTERNAL_HOSTS: `127.0.0.1:${allowed.port}` });
  const { url } = await place.start();
  doors = await openRelayDoors({ count: 2, handsUrl: url, handKey: HAND_KEY });
  for (const name of Object.keys(mcpServers)) await doors.registerStdio(name, name);
  await doors.registerStdio("all", "plain", "shared");
  await doors.registerStdio("filed", "filed");
  await doors.register("stream", allowed.url, "sse");
  await doors.register("internal", internal.url, "sse");
});
afterAll(async () => {
  await doors.close();
  await place.clean();
  await Promise.all([allowed.close(), internal.close()]);
  rmSync(dir, { recursive: true, force: true });
});

const said = (result: Readonly<Record<string, unknown>>): string => (result.content as { text?: string }[]).map(({ text }) => text ?? "").join("\n");
const open = (era: ClientEra, hand: string, headers = FIRST) => connectClient(era, doors.url(hand), { headers });

/** Processes of this machine whose command line holds all of these. */
function running(...words: readonly string[]): readonly number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        const line = readFileSync(`/proc/${name}/cmdline`, "utf8");
        return words.every((word) => line.includes(word));
      } catch {
        // It ended while we looked.
        return false;
      }
    })
    .map(Number);
}

for (const era of ERAS)
  describe(`a client of the ${era} era`, () => {
    test("uses server-everything: a tool, its structured result, progress, a sample, a form", async () => {
      // This server asks each client that has roots for them, at some time: one round more in whatever call runs then.
      const capabilities = { elicitation: {}, sampling: {} };
      const client = await connectClient(era, doors.url("everything"), { headers: FIRST, capabilities });
      try {
        expect(said(await client.call("echo", { message: "hello" }))).toContain("hello");
        const structured = await client.call("get-structured-content", { location: "New York" });
        expect(structured.structuredContent).toMatchObject({ conditions: expect.any(String), temperature: expect.any(Number) });
        const told: number[] = [];
        await client.call("trigger-long-running-operation", { duration: 0.3, steps: 3 }, { onprogress: ({ progress }) => void told.push(progress) });
        expect(told).toEqual([1, 2, 3]);
        expect(said(await client.call("trigger-sampling-request", { prompt: "p", maxTokens: 10 }))).toContain("well said");
        expect(said(await client.call("trigger-elicitation-request"))).toContain("Ada");
      } finally {
        await client.close();
      }
    });

    test("uses a server that speaks the stateless era by its standard input and output", async () => {
      const client = await open(era, "modern");
      try {
        expect(said(await client.call("echo", { text: "across" }))).toBe("across");
      } finally {
        await client.close();
      }
    });

    test("is told within two seconds that the server died, and has a new one with the next connection", async () => {
      const client = await open(era, "plain");
      try {
        await client.call("echo", { text: "a" });
        const began = performance.now();
        await expect(client.call("exit")).rejects.toThrow("it exited with code 7");
        expect(performance.now() - began).toBeLessThan(2_000);
      } finally {
        await client.close();
      }
      const next = await open(era, "plain");
      try {
        expect(said(await next.call("echo", { text: "again" }))).toBe("again");
      } finally {
        await next.close();
      }
    });
  });

test("a killed child ends the call that waits for it, and the next request has another child", async () => {
  const client = await open("stateless", "plain");
  try {
    const pid = Number(said(await client.call("pid")));
    process.kill(pid, "SIGKILL");
    const next = await until(async () => {
      const again = await client.call("pid").catch(() => null);
      return again && Number(said(again));
    });
    expect(next).not.toBe(pid);
  } finally {
    await client.close();
  }
});

test("callers have children of their own, unless the hand is shared", async () => {
  const pid = async (hand: string, headers: typeof FIRST) => {
    const client = await open("stateless", hand, headers);
    try {
      return said(await client.call("pid"));
    } finally {
      await client.close();
    }
  };
  expect(await pid("plain", FIRST)).toBe(await pid("plain", FIRST));
  expect(await pid("plain", FIRST)).not.toBe(await pid("plain", SECOND));
  expect(await pid("all", FIRST)).toBe(await pid("all", SECOND));
});

test("a server of the older event stream is reached from there, by its address or by the operator's file, and only where the operator allows it", async () => {
  for (const hand of ["stream", "filed"])
    for (const era of ERAS) {
      const client = await open(era, hand);
      expect((await client.call("add", { a: 2, b: 3 })).structuredContent).toEqual({ sum: 5 });
      await client.close();
    }
  await expect(open("handshake", "internal")).rejects.toThrow("its address may not be reached from here");
  expect(internal.seen).toEqual([]);
});

test("nothing is left of the children when the hand host ends", async () => {
  const client = await open("handshake", "everything");
  await client.call("echo", { message: "x" });
  expect(running("server-everything", dir).length).toBeGreaterThan(0);
  await client.close();
  await place.last().end("SIGTERM");
  await until(() => running(dir).length === 0, { what: () => `no process of ${dir}: ${running(dir)}` });
});
