// A server of the operator's file that has a URL: requests and answers pass byte for byte, since only this host knows the address.

import type { IncomingMessage, ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { Unreachable } from "../address.ts";
import type { Reach } from "../servers/reach.ts";
import { errorOf, REFUSED } from "./envelope.ts";

/** What is of the protocol. The caller's credential is for us and goes nowhere. */
const PASSED = /^(accept|content-type|last-event-id|mcp-.*|traceparent|tracestate|baggage)$/;
const ANSWERED = /^(content-type|cache-control|mcp-.*|retry-after|allow|www-authenticate)$/;

export async function passThrough(reach: Reach, url: URL, request: IncomingMessage, response: ServerResponse, body: string): Promise<void> {
  const { method = "GET", headers } = request;
  const passed = Object.entries(headers).flatMap(([name, value]): [string, string][] =>
    PASSED.test(name) && typeof value === "string" ? [[name, value]] : [],
  );
  const gone = new AbortController();
  response.once("close", () => gone.abort());
  let answer: Response;
  try {
    answer = await reach.fetch(url, { method, headers: passed, ...(method === "POST" && { body }), signal: gone.signal });
  } catch (error) {
    if (gone.signal.aborted) return;
    const says = error instanceof Unreachable ? error.message : "no connection";
    response.writeHead(502, { "content-type": "application/json" });
    return void response.end(JSON.stringify(errorOf(null, REFUSED, `The server can't be reached: ${says}.`)));
  }
  response.writeHead(answer.status, Object.fromEntries([...answer.headers].filter(([name]) => ANSWERED.test(name))));
  response.flushHeaders();
  if (!answer.body) return void response.end();
  try {
    await pipeline(Readable.fromWeb(answer.body as never), response);
  } catch {
    // Either end went away: the other one learns of it by its own end.
    response.destroy();
  }
}
