// Sends generated requests to a running product, a bounded number at a time, and watches what comes of them.
//
//   F1  No answer is a 5xx. Every refusal is an envelope with the request id of its header; every other answer is what the document says.
//   F2  A refused request changed nothing: at the end the lists hold exactly what was acknowledged, and now and then an object is compared
//       before and after.
//   F3  No answer and no log line shows a key, and no program logged a bug or died.
//
// Each lane changes only objects that it made itself, so that what it compares is its own doing.

import fc from "fast-check";
import { Pool } from "undici";
import { z } from "zod";
import { inlined, isSchema, judge, type Schema } from "../support/json-schema.ts";
import { operationsOf } from "../support/openapi.ts";
import { Acknowledged, type Caller, Lane } from "./lane.ts";
import { type Asked, requestOf } from "./requests.ts";

const IN_FLIGHT = 16;
const CHUNK = 200;
const ANSWER_MS = 30_000;
const FAULTS_MAX = 20;

export interface FuzzOptions {
  readonly url: string;
  readonly apiKey: string;
  readonly seed: number;
  readonly requests: number;
  readonly deadlineMs: number;
}

export interface FuzzReport {
  readonly requests: number;
  readonly ms: number;
  /** How many answers had which status. */
  readonly statuses: ReadonlyMap<number, number>;
  readonly compared: number;
  /** What should not have been, up to a bound. */
  readonly faults: readonly string[];
}

export const WRONG_KEY = "mh_canary-of-a-wrong-key-5521";

export async function fuzz({ url, apiKey, seed, requests, deadlineMs }: FuzzOptions): Promise<FuzzReport> {
  const pool = new Pool(url, { connections: IN_FLIGHT, headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS });
  const statuses = new Map<number, number>();
  const faults: string[] = [];
  const blame = (fault: string) => void (faults.length < FAULTS_MAX && faults.push(fault));
  try {
    const call: Caller = async ({ method, path, headers, body, key }) => {
      const secret = key === "right" ? { "x-api-key": apiKey } : key === "wrong" ? { "x-api-key": WRONG_KEY } : {};
      const answer = await pool.request({ method: method as "GET", path, headers: { ...headers, ...secret }, body });
      const isStream = String(answer.headers["content-type"]).startsWith("text/event-stream");
      if (isStream) answer.body.on("error", () => {}).destroy();
      const text = isStream ? "" : await answer.body.text();
      if (text.includes(apiKey) || text.includes(WRONG_KEY)) blame(`a key is said back: ${method} ${path}`);
      return { status: answer.statusCode, requestId: String(answer.headers["request-id"]), text, isStream };
    };
    const document = read((await call({ method: "GET", path: "/openapi.json", headers: {}, body: null, key: "none" })).text);
    const operations = operationsOf(document).filter(({ needsKey }) => needsKey);
    const judges = {
      answers: new Map(operations.flatMap(({ id, answer }) => (answer ? [[id, judge(answer)] as const] : []))),
      error: judge(inlined(document, { $ref: "#/components/schemas/Error" }, true)),
    };
    const acknowledged = new Acknowledged();
    const started = performance.now();
    let sent = 0;
    const next = drawn(requestOf(operations), seed, requests);
    const run = async (at: number) => {
      const lane = new Lane({ at, call, acknowledged, judges, blame });
      await lane.prepare();
      for (;;) {
        if (performance.now() - started > deadlineMs) return blame(`not done within ${deadlineMs} ms`);
        const asked = next();
        if (!asked) return;
        const status = await lane.send(asked);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
        sent += 1;
        if (faults.length >= FAULTS_MAX) return;
      }
    };
    const lanes = Array.from({ length: IN_FLIGHT }, (_, at) => run(at));
    await Promise.all(lanes);
    for (const fault of await acknowledged.misfits(call)) blame(fault);
    return { requests: sent, ms: performance.now() - started, statuses, compared: acknowledged.compared, faults };
  } finally {
    await pool.destroy();
  }
}

const read = (text: string): Schema => z.record(z.string(), z.unknown()).refine(isSchema).parse(JSON.parse(text));

/** Draws chunk by chunk: what a seed gives does not depend on who asks when. */
function drawn(arbitrary: fc.Arbitrary<Asked>, seed: number, count: number): () => Asked | undefined {
  let chunk: Asked[] = [];
  let left = count;
  let round = 0;
  return () => {
    if (left === 0) return undefined;
    if (chunk.length === 0) chunk = fc.sample(arbitrary, { seed: seed + round++, numRuns: CHUNK });
    left -= 1;
    return chunk.pop();
  };
}

/** One line for whoever runs it. */
export function tell({ requests, ms, statuses, compared, faults }: FuzzReport): string {
  const counts = [...statuses].sort(([one], [other]) => one - other).map(([status, count]) => `${status}: ${count}`);
  const rate = Math.round(requests / (ms / 1000));
  return `fuzz: ${requests} requests (${rate}/s), ${counts.join(", ")}; ${compared} compared before and after; ${faults.length} faults`;
}
