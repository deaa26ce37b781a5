// The client of hand hosts, against hosts that answer oddly.

import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { pino } from "pino";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { makeHands } from "../../hands/client.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";

const never = new AbortController().signal;
const holder = { session: mintSession(), fence: 1 as Fence };
const ref = { hand: "hand_1", host: "host_1" };

afterEach(() => void vi.useRealTimers());

/** A hand host that gives these answers, the last one for ever; the client of it, and what that one logs. */
async function hostThat(...answers: readonly ((response: ServerResponse, id: unknown) => void)[]) {
  const left = [...answers];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += String(piece);
    const { id } = JSON.parse(body) as { id: unknown };
    (left.length > 1 ? left.shift() : left[0])?.(response, id);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const lines: string[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => lines.push(line) });
  const hands = makeHands({ resolve: async () => ({ url, boot: 1 }), local: { url }, handKey: "key", log, handLostMs: 5_000 });
  onTestFinished(async () => {
    await hands.close();
    server.close();
  });
  return { hands, lines };
}

const good = (response: ServerResponse, id: unknown) =>
  response
    .writeHead(200, { "content-type": "application/json" })
    .end(JSON.stringify({ jsonrpc: "2.0", id, result: { content: [{ type: "text", text: "ran" }] } }));
const run = { id: "sevt_1", name: "bash", input: { command: "ls" } };
const ran = { type: "done", content: [{ type: "text", text: "ran" }], isError: false };

test("a wall clock that is set forward loses no hand", async () => {
  vi.useFakeTimers({ toFake: ["Date"] });
  const { hands } = await hostThat((response) => {
    vi.setSystemTime(Date.now() + 3_600_000);
    response.writeHead(503).end();
  }, good);
  expect(await hands.execute(holder, ref, run, false, never)).toEqual(ran);
});

test("an answer that is no JSON is asked for again, and none of it is told", async () => {
  const { hands, lines } = await hostThat(
    (response) => response.writeHead(200, { "content-type": "application/json" }).end('{"a secret of the tool'),
    (response) => response.writeHead(200, { "content-type": "text/event-stream" }).end('data: {"a secret of the tool\n\n'),
    good,
  );
  expect(await hands.execute(holder, ref, run, false, never)).toEqual(ran);
  expect(lines).toHaveLength(2);
  expect(lines.join()).not.toContain("secret");
});
