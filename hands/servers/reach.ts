// The one fetch that goes to the servers of agents.
//
//   A1 A2 A3  Which addresses it may reach: see address.ts.
//   A4  A redirect is never followed to another origin.
//   A5  What a server sends is counted: past the limit its stream is an error.

import { Agent, fetch, type RequestInit, Response } from "undici";
import { guardedConnector, refusedUrl, Unreachable } from "../address.ts";
import { ANSWER_BYTES_MAX } from "./limits.ts";
import { Flood, tooManyBytes } from "./too-much.ts";

const CONNECTIONS_MAX = 64;

/** As a server's transport takes it. */
export type Fetch = (url: string | URL, init?: globalThis.RequestInit) => Promise<globalThis.Response>;

export class Reach {
  readonly #agent: Agent;

  /** `internalHosts`: "host" or "host:port" of internal addresses that may be reached all the same; "*" for all of them. */
  constructor(internalHosts: readonly string[], connectMs: number, connections = CONNECTIONS_MAX) {
    this.#agent = new Agent({
      connections,
      // A call's own limits end it; a silent answer is no error by itself.
      headersTimeout: 0,
      bodyTimeout: 0,
      connect: guardedConnector(internalHosts, connectMs),
    });
  }

  readonly fetch: Fetch = async (url, init = {}) => {
    const at = new URL(url);
    const wrong = refusedUrl(at);
    if (wrong !== null) throw new Unreachable(wrong);
    const { headers, body, method, signal } = init;
    const request: RequestInit = {
      method: method ?? "GET",
      headers: [...new Headers(headers)],
      ...(typeof body === "string" ? { body } : {}),
      signal: signal ?? null,
      redirect: "manual", // A4
      dispatcher: this.#agent,
    };
    const answer = await fetch(at, request);
    // The two Response types are one at run time; the globals' declaration comes from an older release of the same package.
    return counted(answer, method === "GET") as unknown as globalThis.Response;
  };

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

/** The same answer, its body an error past the limit. A stream that stays open is counted over a while. A5 */
export function counted(answer: Response, isListening: boolean): Response {
  if (answer.body === null) return answer;
  let bytes = 0;
  const flood = new Flood(ANSWER_BYTES_MAX);
  const counter = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.byteLength;
      const isOver = isListening ? flood.isOver(chunk.byteLength) : bytes > ANSWER_BYTES_MAX;
      if (isOver) controller.error(tooManyBytes());
      else controller.enqueue(chunk);
    },
  });
  const { status, statusText, headers } = answer;
  return new Response(answer.body.pipeThrough(counter), { status, statusText, headers });
}
