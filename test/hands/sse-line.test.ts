// A line to a server of the older HTTP+SSE transport: what it reads, where it posts to, and how it ends. The server is a plain HTTP server.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import type { Envelope } from "../../hands/relay/envelope.ts";
import { SseLine } from "../../hands/relay/sse-line.ts";
import { type ServerEvent, SseParser } from "../../hands/relay/sse-parser.ts";
import { Reach } from "../../hands/servers/reach.ts";
import { until } from "../support/until.ts";

type Serve = (request: IncomingMessage, response: ServerResponse, body: string) => void;
const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

async function startServer(serve: Serve): Promise<string> {
  const http = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => serve(request, response, Buffer.concat(chunks).toString()));
  });
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  closers.push(async () => {
    http.closeAllConnections();
    await new Promise((resolve) => http.close(resolve));
  });
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
}

function begin(response: ServerResponse, text = ""): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(text === "" ? ": open\n\n" : text);
}

async function openLine(url: string, { hosts = ["*"], connectMs = 5_000 } = {}) {
  const reach = new Reach(hosts, 1_000);
  const strays: string[] = [];
  const heard: Envelope[] = [];
  const line = new SseLine({ url: new URL(`${url}/sse`), fetch: reach.fetch, connectMs, stray: (says) => void strays.push(says) });
  await line.start({ message: (message) => void heard.push(message), closed: () => {} });
  closers.push(async () => {
    await line.close();
    await reach.close();
  });
  return { line, heard, strays };
}
const ask = (id: number, method = "m"): Envelope => ({ jsonrpc: "2.0", id, method });
const endOf = (line: SseLine) => until(() => line.end, { what: "the end of the line" });

test("a server that says without measure what is no message is ended, and few of it are told", async () => {
  const url = await startServer((_request, response) => {
    begin(response, "event: endpoint\ndata: /post\n\n");
    response.write(`data: [${Array(100_000).fill("1").join(",")}]\n\n`);
  });
  const { line, strays } = await openLine(url);
  expect(await endOf(line)).toContain("it sent more than 20000 messages");
  expect(strays).toHaveLength(20);
});

test("messages pass both ways, posted where the first event says, a batch of the server one by one", async () => {
  const posted: unknown[] = [];
  let stream: ServerResponse | undefined;
  const url = await startServer((request, response, body) => {
    if (request.method === "GET") {
      begin(response, "event: endpoint\ndata: /post?session=1#hash\n\nevent: endpoint\ndata: /other\n\n");
      stream = response;
    } else {
      posted.push([request.url, request.headers["mcp-protocol-version"], JSON.parse(body)]);
      response.writeHead(202).end("Accepted");
    }
  });
  const { line, heard, strays } = await openLine(url);
  await line.send(ask(1));
  line.agreed("2024-11-05");
  await line.send(ask(2));
  expect(posted).toEqual([
    ["/post?session=1", undefined, ask(1)],
    ["/post?session=1", "2024-11-05", ask(2)],
  ]);
  stream?.write(
    'data: [{"jsonrpc":"2.0","id":1,"result":{}},\ndata: {"jsonrpc":"2.0","method":"n"}]\n\nevent: other\ndata: {}\n\ndata: nothing\n\ndata: 7\n\n',
  );
  await until(() => strays.length === 2);
  expect(heard).toEqual([
    { jsonrpc: "2.0", id: 1, result: {} },
    { jsonrpc: "2.0", method: "n" },
  ]);
});

describe("a line ends, in words without an address,", () => {
  const cases: [string, Serve, RegExp][] = [
    [
      "when the messages are to go to another origin",
      (_, response) => begin(response, "event: endpoint\ndata: http://127.0.0.1:1/post\n\n"),
      /another origin/,
    ],
    ["when they are to go where no address is", (_, response) => begin(response, "event: endpoint\ndata: http://[\n\n"), /another origin/],
    [
      "when an address holds a password",
      (request, response) => begin(response, `event: endpoint\ndata: http://u:p@${request.headers.host}/post\n\n`),
      /another origin/,
    ],
    ["at a redirect", (_, response) => void response.writeHead(307, { location: "http://127.0.0.1:1/" }).end(), /redirect, which is not followed/],
    ["when it wants a credential", (_, response) => void response.writeHead(401).end(), /refused the credentials/],
    [
      "at something that is no stream",
      (_, response) => void response.writeHead(200, { "content-type": "text/html" }).end("<p>"),
      /something else than a stream/,
    ],
    [
      "when the stream is over",
      (_, response) => void response.writeHead(200, { "content-type": "text/event-stream" }).end(": bye\n\n"),
      /its stream ended/,
    ],
    ["when it does not say where to post to", (_, response) => begin(response), /where to post to within 300 ms/],
  ];
  test.each(cases)("%s", async (_, serve, words) => {
    const { line } = await openLine(await startServer(serve), { connectMs: 300 });
    const sent = line.send(ask(1)).then(
      () => "sent",
      (error: Error) => error.message,
    );
    expect(await endOf(line)).toMatch(words);
    expect(await sent).toMatch(words);
  });

  test("at an internal address that nobody allowed", async () => {
    const { line, strays } = await openLine(await startServer((_, response) => begin(response)), { hosts: [] });
    expect(await endOf(line)).toBe("its address may not be reached from here");
    expect(strays).toEqual([expect.stringContaining("MANYHANDS_MCP_INTERNAL_HOSTS does not list it")]);
  });

  test("when its server forgot the stream; other refusals are of one message", async () => {
    const statuses = [500, 302, 404];
    const url = await startServer((request, response) => {
      if (request.method === "GET") begin(response, "event: endpoint\ndata: /post\n\n");
      else response.writeHead(statuses.shift() ?? 202).end();
    });
    const { line } = await openLine(url);
    await expect(line.send(ask(1))).rejects.toMatchObject({ name: "Untaken", message: "it answered with status 500", mayHaveRun: true });
    await expect(line.send(ask(2))).rejects.toMatchObject({ name: "Untaken", mayHaveRun: false });
    expect(line.end).toBeNull();
    await expect(line.send(ask(3))).rejects.toThrow("404");
    expect(line.end).toContain("does not know its own stream any more");
  });
});

test("a notice waits for the requests before it, and those after it for the notice; a server that answers no post holds up nothing for long", async () => {
  const posted: string[] = [];
  const answers: ServerResponse[] = [];
  const url = await startServer((request, response, body) => {
    if (request.method === "GET") return begin(response, "event: endpoint\ndata: /post\n\n");
    posted.push(JSON.parse(body).method);
    answers.push(response);
  });
  const { line } = await openLine(url);
  const notice: Envelope = { jsonrpc: "2.0", method: "notice" };
  const sent = [line.send(ask(1, "one")), line.send(ask(2, "two")), line.send(notice), line.send(ask(3, "three"))];
  await until(() => posted.length === 2);
  expect(posted.toSorted()).toEqual(["one", "two"]);
  for (const answer of answers.splice(0)) answer.writeHead(202).end();
  await until(() => posted.length === 3);
  expect(posted[2]).toBe("notice");
  // The notice is never answered.
  await until(() => posted.length === 4, { timeoutMs: 3_000 });
  expect(line.waitingBytes).toBeGreaterThan(0);
  await line.close();
  expect((await Promise.allSettled(sent)).map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected", "rejected"]);
  expect(line.waitingBytes).toBe(0);
});

describe("events", () => {
  const events = (pieces: readonly (string | Uint8Array)[], max = 1_000): ServerEvent[] => {
    const heard: ServerEvent[] = [];
    const parser = new SseParser(
      (event) => void heard.push(event),
      max,
      () => new Error("too long"),
    );
    for (const piece of pieces) parser.take(typeof piece === "string" ? Buffer.from(piece) : piece);
    return heard;
  };

  test("are the same wherever a piece ends, and whatever ends a line", () => {
    const text = "\ufeff: hello\r\nevent: a\r\ndata: é🖐\r\ndata:  two\r\n\r\ndata:one\rdata\rid: 7\r\r\n\ndata: last\n\n\ndata: open";
    const wanted = [
      { type: "a", data: "é🖐\n two" },
      { type: "message", data: "one\n" },
      { type: "message", data: "last" },
    ];
    expect(events([text])).toEqual(wanted);
    const bytes = Buffer.from(text);
    expect(events([...bytes].map((byte) => Buffer.from([byte])))).toEqual(wanted);
    for (let at = 1; at < bytes.length; at += 1) expect(events([bytes.subarray(0, at), bytes.subarray(at)])).toEqual(wanted);
  });

  test("that are too long are an error, however they come; comments count for none", () => {
    expect(() => events([`data: ${"x".repeat(1_001)}`])).toThrow("too long");
    expect(() => events(Array.from({ length: 300 }, () => "data: x\n"))).toThrow("too long");
    expect(events([...Array.from({ length: 500 }, () => ": ping\n"), "data: x\n\n"])).toEqual([{ type: "message", data: "x" }]);
  });
});
