// `npm run demo`: the whole product at work on one small task, seen from outside through the official SDK.
//
//   D1  Every step has a deadline, every failure one clear message and exit code 1; what was started is always stopped.
//   D2  Without a model key the answers come from a script, and the screen says so.

import { randomUUID } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import type { ScriptedModel } from "../support/model/server.ts";
import { expectedTotals } from "./expected.ts";
import { REPORT_FILE, startOfflineModel } from "./offline-model.ts";
import { type Product, startProduct } from "./product.ts";
import { paint, type StreamEvent, Timeline, wordsOf } from "./timeline.ts";

const STEP_MS = 60_000;
const MODEL = process.env.DEMO_MODEL ?? "claude-haiku-4-5";
const DATA_DIR = resolve(".manyhands/demo");
const QUESTION = [
  "These are our sales of the first half of 2026. Which region and which product earned most, and does a month stand out?",
  "Put the data into /workspace/sales.csv and work it out there with shell commands;",
  `then write a short report to ${REPORT_FILE}, read it back, and tell me the result in two sentences.`,
].join(" ");

const say = (text = ""): void => void process.stdout.write(`${text}\n`);
const stopping: (() => Promise<void>)[] = [];
let isStopped = false;

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => {
    void stopAll().then(() => process.exit(130));
  });
}
try {
  await demo();
} catch (error) {
  if (!isStopped) process.stderr.write(`\n${paint("red", "The demo failed:")} ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
} finally {
  await stopAll();
}
// Idle connections of the SDK would hold the process for a while.
process.exit();

async function demo(): Promise<void> {
  const csv = readFileSync(join(import.meta.dirname, "sales.csv"), "utf8");
  say(paint("bold", "Manyhands demo: an agent looks at sales figures in a sandbox of its own."));
  const isOffline = !process.env.ANTHROPIC_API_KEY && !process.env.MANYHANDS_MODEL_KEY_FILE;
  const settings = isOffline ? await offline() : {};
  if (isOffline) {
    say(paint("yellow", "No model key is set: the agent's answers are SCRIPTED. Tools, sandbox, log and streams are the real ones."));
  } else say(`Model: ${MODEL} (DEMO_MODEL chooses another).`);

  say(paint("dim", "Starting vault proxy, hand host and gateway …"));
  const startedAt = performance.now();
  const product = await startProduct(DATA_DIR, settings, (stop) => stopping.push(stop));
  say(`Ready after ${Math.round(performance.now() - startedAt)} ms: ${product.url}`);
  say();

  const client = new Anthropic({ apiKey: product.apiKey, baseURL: product.url, timeout: STEP_MS });
  const session = await step("creating the session", product, createSession(client));
  const events = await step("asking", product, ask(client, session, csv));
  const outcome = await watch(events, product);
  finish(outcome, isOffline ? csv : null, session, product);
}

/** D2 */
async function offline(): Promise<Record<string, string>> {
  const key = `offline-${randomUUID()}`;
  const model: ScriptedModel = await startOfflineModel({ key });
  stopping.push(() => model.close());
  return { ANTHROPIC_BASE_URL: model.url, ANTHROPIC_API_KEY: key };
}

async function createSession(client: Anthropic): Promise<string> {
  const agent = await client.beta.agents.create({
    name: "Analyst",
    model: MODEL,
    system: "You are a careful analyst. Work with the tools, state only numbers that you have computed, and be brief.",
    tools: [{ type: "agent_toolset_20260401" }],
  });
  const environment = await client.beta.environments.create({ name: `demo-${randomUUID().slice(0, 8)}` });
  const session = await client.beta.sessions.create({ agent: agent.id, environment_id: environment.id, title: "Sales, first half of 2026" });
  say(paint("dim", `agent ${agent.id}  environment ${environment.id}  session ${session.id}`));
  say();
  return session.id;
}

/** Opens the stream first, so that nothing is missed, and sends the question. */
async function ask(client: Anthropic, session: string, csv: string): Promise<AsyncIterator<StreamEvent>> {
  const stream = await client.beta.sessions.events.stream(session, { event_deltas: ["agent.message"] });
  stopping.push(async () => stream.controller.abort());
  await client.beta.sessions.events.send(session, {
    events: [
      {
        type: "user.message",
        content: [
          { type: "document", title: "sales.csv", source: { type: "text", media_type: "text/plain", data: csv } },
          { type: "text", text: QUESTION },
        ],
      },
    ],
  });
  return stream[Symbol.asyncIterator]();
}

interface Outcome {
  /** The report as the agent's tools had it last: read back, or else as written. */
  readonly report: string | null;
  readonly answer: string;
}

async function watch(events: AsyncIterator<StreamEvent>, product: Product): Promise<Outcome> {
  const timeline = new Timeline();
  const reads = new Set<string>();
  let [report, answer, lastError]: [string | null, string, string] = [null, "", ""];
  for (;;) {
    const { value: event, done } = await step("the next event", product, events.next());
    if (done === true) throw new Error("The event stream ended in the middle of the turn.");
    timeline.show(event);
    if (event.type === "agent.message") answer = wordsOf(event.content, "");
    if (event.type === "agent.tool_use" && event.input.file_path === REPORT_FILE) {
      if (event.name === "read") reads.add(event.id);
      if (event.name === "write") report = String(event.input.content);
    }
    if (event.type === "agent.tool_result" && event.is_error !== true && reads.has(event.tool_use_id)) {
      report = wordsOf(event.content ?? [], "\n");
    }
    if (event.type === "session.error") lastError = event.error.message;
    if (event.type !== "session.status_idle") continue;
    if (event.stop_reason.type === "end_turn") return { report, answer };
    throw new Error(`The turn ended with ${event.stop_reason.type}. ${lastError}`);
  }
}

/** `csv`: what a scripted agent's report must agree with; null for a real model, which words it in its own way. */
function finish({ report, answer }: Outcome, csv: string | null, session: string, product: Product): void {
  if (report === null) throw new Error(`The agent wrote no ${REPORT_FILE}. Its last words: ${answer}`);
  const missing = csv === null ? [] : expectedTotals(csv).filter(({ name, amount }) => !report.includes(`| ${name} | ${amount.toFixed(2)} |`));
  if (missing.length > 0)
    throw new Error(`The report is wrong about ${missing.map((sum) => sum.name).join(", ")}. The agent's last words: ${answer}`);
  say();
  say(paint("bold", REPORT_FILE));
  say(report.trimEnd());
  say();
  say(paint("bold", "The agent says: ") + answer);
  say();
  const folder = relative(process.cwd(), DATA_DIR);
  say(`The session's log is kept in ${folder}/ (delete it when you like). Session ${session}`);
  say(paint("bold", "What to try next"));
  say("  MANYHANDS_MODEL_KEY_FILE=key.txt npm run demo   the same with a real model; its key never leaves the vault proxy");
  say("  npm start                                       serves on http://127.0.0.1:4100, for the official SDK: new Anthropic({ apiKey, baseURL })");
  say("  pkill -9 -f dist/gateway/main.js                in the middle of a turn: the gateway is started again, and the turn goes on from its log");
  if (!existsSync(DATA_DIR)) throw new Error(`The log is not where it should be: ${DATA_DIR} (${product.url})`);
}

/** D1 */
async function step<T>(what: string, product: Product, doing: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Waiting for ${what} took more than ${STEP_MS / 1000} s.`)), STEP_MS);
  });
  try {
    return await Promise.race([doing, late, product.ended]);
  } finally {
    clearTimeout(timer);
  }
}

async function stopAll(): Promise<void> {
  isStopped = true;
  for (const stop of stopping.splice(0).reverse()) await stop();
}
