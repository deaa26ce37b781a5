// A server that crashes, closes its stream, answers 5xx, can't be started or ends before the handshake is an error that names it within two seconds; the
// next call connects or starts it anew.
//
// modelcontextprotocol/python-sdk#1577, supercorp-ai/supergateway#139, supercorp-ai/supergateway#177

import { afterEach, expect, test } from "vitest";
import { closeHands, type OpenHand, openCommand, openUrl, stdio, textOf } from "../../support/mcp/hand.ts";
import { type Asked, RawServer } from "../../support/mcp/raw.ts";

const SOON_MS = 2_000;
const started: RawServer[] = [];
afterEach(async () => {
  await closeHands();
  await Promise.all(started.splice(0).map((server) => server.close()));
});

async function soon({ call }: OpenHand, tool: string): Promise<string> {
  const from = performance.now();
  const said = textOf(await call(tool));
  expect(performance.now() - from).toBeLessThan(SOON_MS);
  expect(said).toContain('"thing"');
  return said;
}

const ways: Record<string, (asked: Asked) => void> = {
  "cuts the connection": ({ request }) => request.socket.destroy(),
  "ends its stream without an answer": (asked) => {
    asked.stream();
    asked.response.end();
  },
  "cuts a stream that was begun": (asked) => {
    asked.stream()({ method: "notifications/message", params: { level: "info", data: "at work" } });
    setTimeout(() => asked.request.socket.destroy(), 50);
  },
  "answers 500": ({ response }) => response.writeHead(500).end("boom"),
  "answers what is no JSON": ({ response }) => response.writeHead(200, { "content-type": "application/json" }).end("{oops"),
};

test.each(Object.keys(ways))("a server that %s in a call is an error now, and is called again", async (way) => {
  let isBroken = false;
  const server = await RawServer.start({
    hasSessions: true,
    script(asked) {
      if (!isBroken || asked.rpc.method !== "tools/call") return false;
      ways[way]?.(asked);
      return true;
    },
  });
  started.push(server);
  const hand = openUrl(server.url);
  expect(textOf(await hand.call("echo", { text: "before" }))).toBe("echo: before");
  isBroken = true;
  expect(await soon(hand, "echo")).toMatch(/^(unknown|failed)/);
  isBroken = false;
  expect(textOf(await hand.call("echo", { text: "after" }))).toBe("echo: after");
});

test("a server that is not there says so, and is used when it is back", async () => {
  const first = await RawServer.start();
  const { url, port } = first;
  await first.close();
  const hand = openUrl(url);
  expect(await soon(hand, "echo")).toMatch(/^failed: .*ECONNREFUSED.*was not run$/);
  started.push(await RawServer.start({ port }));
  expect(textOf(await hand.call("echo", { text: "back" }))).toBe("echo: back");
});

test("a child that ends in a call is an error now, and is started again", async () => {
  const hand = openCommand(stdio("plain"));
  const pid = textOf(await hand.call("pid"));
  expect(await soon(hand, "exit")).toMatch(/^unknown: /);
  expect(textOf(await hand.call("pid"))).not.toBe(pid);
});

test.each([
  ["ends before it answers anything", stdio("exit"), /code 3/],
  ["is a command that does not exist", { command: "/no/such/command" }, /ENOENT/],
  ["is a command that no system starts", { args: ["x".repeat(3_000_000)] }, /E2BIG/],
  [
    "may start no process itself",
    { command: "prlimit", args: ["--nproc=0", "--", "setpriv", "--reuid=65534", "--clear-groups", "/bin/sh", "-c", "true | true"] },
    /code|ended by/,
  ],
])("a child that %s is an error now", async (_, command, says) => {
  const from = performance.now();
  const said = textOf(await openCommand(command).call("echo"));
  expect(performance.now() - from).toBeLessThan(SOON_MS);
  expect(said).toMatch(/^failed: MCP server "thing"/);
  expect(said).toMatch(says);
});
