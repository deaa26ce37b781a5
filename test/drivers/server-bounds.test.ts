// A server that sends without measure: the call ends in bounded time with a clear word, the hand host's memory stays bounded, and other sessions do not
// notice. The hand host is a process of its own, so that its memory is its own.

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { HandsClient } from "../../hands/client.ts";
import type { HandRef, Holder, ServerTools } from "../../hands/hand.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";
import { textOf } from "../support/mcp/hand.ts";
import { type Asked, RawServer, says, tool } from "../support/mcp/raw.ts";
import { makePlace, type Place } from "./hand-host.ts";

const MB = 1024 * 1024;
const IDLE_MS = 15_000;
const TOTAL_MS = 30_000;
const ENDED_MS = 28_000;
/** What the hand host may grow by at its worst moment. The limit of one answer is 64 MB: as bytes, as text, and parsed. */
const GROWTH_MB = 300;
/** On a machine that does much else besides. */
const NEIGHBOUR_MS = 10_000;
const never = new AbortController().signal;

let place: Place;
let hands: HandsClient;
const started: RawServer[] = [];
beforeEach(async () => {
  place = makePlace({
    MANYHANDS_MCP_INTERNAL_HOSTS: "*",
    MANYHANDS_MCP_IDLE_TIMEOUT_MS: String(IDLE_MS),
    MANYHANDS_MCP_TOTAL_TIMEOUT_MS: String(TOTAL_MS),
    MANYHANDS_MCP_CONNECT_TIMEOUT_MS: "20000",
  });
  await place.start();
  hands = place.client();
});
afterEach(async () => {
  await place.clean();
  await Promise.all(started.splice(0).map((server) => server.close()));
});

async function serve(options: Parameters<typeof RawServer.start>[0]): Promise<RawServer> {
  const server = await RawServer.start({ hasSessions: true, ...options });
  started.push(server);
  return server;
}

interface Used {
  call(name: string, id?: string): Promise<string>;
  list(): Promise<ServerTools>;
}
async function use(server: RawServer): Promise<Used> {
  const holder: Holder = { session: mintSession(), fence: 1 as Fence };
  const ref: HandRef = await hands.provision(holder, { server: { name: "loud", transport: { type: "url", url: server.url } } }, never);
  return {
    call: async (name, id = name) => textOf(await hands.execute(holder, ref, { id, name, input: {} }, false, never)),
    list: () => hands.listTools(holder, ref, { known: null, waitMs: 20_000, isFresh: true }, never),
  };
}

/** The most that the hand host ever held, in MB. */
const peak = (): number => Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${place.last().child.pid}/status`, "utf8"))?.[1]) / 1024;

/** Runs `work` while a session with a good server goes on; gives what it came to. */
async function beside<T>(work: () => Promise<T>): Promise<T> {
  const good = await use(await serve({ call: () => says("fine") }));
  await good.call("echo", "before");
  const before = peak();
  let isOver = false;
  let slowest = 0;
  const neighbour = (async () => {
    for (let n = 0; !isOver; n += 1) {
      const from = performance.now();
      expect(await good.call("echo", `beside-${n}`)).toBe("fine");
      slowest = Math.max(slowest, performance.now() - from);
      await sleep(50);
    }
  })();
  const from = performance.now();
  try {
    return await work();
  } finally {
    isOver = true;
    await neighbour;
    const took = performance.now() - from;
    const grown = peak() - before;
    process.stderr.write(`bounds: ${Math.round(took)} ms, ${Math.round(grown)} MB, neighbour ${Math.round(slowest)} ms\n`);
    expect(took).toBeLessThan(ENDED_MS);
    expect(grown).toBeLessThan(GROWTH_MB);
    expect(slowest).toBeLessThan(NEIGHBOUR_MS);
  }
}

/** Writes pieces as fast as they are read, until `count` of them are out or nobody reads any more. */
async function pour({ response, request }: Asked, piece: (n: number) => string, count: number): Promise<void> {
  let isGone = false;
  let go = () => {};
  request.socket.once("close", () => {
    isGone = true;
    go();
  });
  response.on("error", () => {}).on("drain", () => go());
  for (let n = 0; n < count && !isGone; n += 1)
    if (!response.write(piece(n)))
      await new Promise<void>((resolve) => {
        go = resolve;
      });
}

const token = ({ rpc }: Asked) => (rpc.params?._meta as { progressToken?: number } | undefined)?.progressToken;
const event = (message: object) => `event: message\ndata: ${JSON.stringify({ jsonrpc: "2.0", ...message })}\n\n`;
const progress = (asked: Asked) => {
  const progressToken = token(asked);
  return (n: number) => event({ method: "notifications/progress", params: { progressToken, progress: n } });
};

const FLOODS: Record<string, { readonly run: (asked: Asked) => Promise<void>; readonly says: RegExp }> = {
  "a result of 100 MB": {
    async run(asked) {
      asked.response.writeHead(200, { "content-type": "application/json" });
      asked.response.write(`{"jsonrpc":"2.0","id":${asked.rpc.id},"result":{"content":[{"type":"text","text":"`);
      const piece = "x".repeat(MB);
      await pour(asked, () => piece, 100);
      asked.response.end('"}]}}');
    },
    says: /more than 67108864 bytes in one answer/,
  },
  "a result of 100 MB in a stream": {
    async run(asked) {
      asked.stream();
      asked.response.write(`event: message\ndata: {"jsonrpc":"2.0","id":${asked.rpc.id},"result":{"content":[{"type":"text","text":"`);
      const piece = "x".repeat(MB);
      await pour(asked, () => piece, 100);
      asked.response.end('"}]}}\n\n');
    },
    says: /more than 67108864 bytes in one answer/,
  },
  "comments without an end": {
    async run(asked) {
      asked.stream();
      const piece = `: ${"x".repeat(1_000)}\n\n`;
      await pour(asked, () => piece, Number.POSITIVE_INFINITY);
    },
    says: /more than 67108864 bytes in one answer/,
  },
  "a million words of progress": {
    async run(asked) {
      asked.stream();
      await pour(asked, progress(asked), 1_000_000);
      if (asked.rpc.id !== undefined) asked.response.end(event({ id: asked.rpc.id, result: says("done") }));
    },
    says: /more than \d+ (messages|bytes) in/,
  },
};

describe("a server that sends", () => {
  test.each(Object.entries(FLOODS))("%s is an error, and the next call works", { timeout: 60_000 }, async (_what, { run, says: words }) => {
    const server = await serve({
      call: (name, _input, asked) => {
        if (name !== "flood") return says("calm");
        void run(asked);
        return undefined;
      },
    });
    const { call } = await use(server);
    expect(await beside(() => call("flood"))).toMatch(words);
    expect(await call("calm")).toBe("calm");
  });
});

test("a hundred thousand tools are a bounded list, and that is said", { timeout: 60_000 }, async () => {
  const server = await serve({ tools: Array.from({ length: 100_000 }, (_, n) => tool(`t${n}`)) });
  const { list, call } = await use(server);
  const read = await beside(list);
  if (read.type !== "ready") throw new Error(`the list is ${read.type}`);
  expect(read.tools).toHaveLength(1_000);
  expect(read.notes.map(({ says: said }) => said).join()).toContain("more than 1000 tools");
  expect(await call("t0")).toContain("t0");
});

test("a server that says without an end that its tools changed is asked now and then", { timeout: 60_000 }, async () => {
  const server = await serve({});
  const { list, call } = await use(server);
  await list();
  await expect.poll(() => server.listeners).toBe(1);
  const before = server.count("tools/list");
  await beside(async () => {
    const until = performance.now() + 3_000;
    while (performance.now() < until) {
      for (let n = 0; n < 50; n += 1) server.tell("notifications/tools/list_changed");
      await sleep(10);
    }
  });
  const asked = server.count("tools/list") - before;
  expect(asked).toBeGreaterThan(0);
  expect(asked).toBeLessThan(10);
  expect(await call("echo")).toContain("echo");
});
