// The official SDK's own helpers against this product (C-05), on the embedded store and through two gateways on one Redis, and a silent stream
// behind a proxy that cuts what is idle (C-02).

import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { inlined, judge, type Schema } from "../support/json-schema.ts";
import { startModel } from "../support/model/server.ts";
import { startProgram } from "../support/process.ts";
import { needs } from "../support/real-part.ts";
import { startRedis } from "../support/redis.ts";
import { startRoundRobin } from "../support/round-robin.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";

type Event = Anthropic.Beta.Sessions.BetaManagedAgentsStreamSessionEvents;

const API_KEY = "mh_sdk-test-api-key-0123456789";
const TURN_MS = 60_000;
const READY_MS = 60_000;
const EVENTS_MIN = 300;
const PAGE = 20;
/** Proxies cut at 20 s what is silent, and a stream says something every 15 s: here a tenth and less of it. */
const IDLE_CUT_MS = 2_000;
const KEEP_ALIVE_MS = 500;

/** What was started, ended in reverse order. */
class Place {
  readonly #undo: (() => Promise<unknown>)[] = [];
  modelUrl = "";
  folder = "";

  async open(): Promise<this> {
    this.folder = await mkdtemp(join(tmpdir(), "manyhands-sdk-"));
    this.onClose(() => rm(this.folder, { recursive: true, force: true }));
    const model = await startModel();
    this.onClose(() => model.close());
    this.modelUrl = model.url;
    return this;
  }

  onClose(undo: () => Promise<unknown>): void {
    this.#undo.push(undo);
  }

  async node(name: string, settings: Readonly<Record<string, string>> = {}): Promise<string> {
    const program = startProgram("gateway/cli", {
      args: ["start"],
      env: {
        MANYHANDS_PORT: "0",
        MANYHANDS_DATA_DIR: join(this.folder, name),
        MANYHANDS_API_KEY: API_KEY,
        MANYHANDS_KEEP_ALIVE_MS: String(KEEP_ALIVE_MS),
        ANTHROPIC_BASE_URL: this.modelUrl,
        ANTHROPIC_API_KEY: "the-scripted-model-takes-any-key",
        ...settings,
      },
    });
    this.onClose(async () => {
      program.kill("SIGTERM");
      await program.exit().finally(() => program[Symbol.asyncDispose]());
    });
    return String((await program.logged("launcher.ready", { timeoutMs: READY_MS })).url);
  }

  async close(): Promise<void> {
    for (const undo of this.#undo.reverse()) await undo();
  }
}

const say = (text: string) => ({ type: "user.message" as const, content: [{ type: "text" as const, text }] });
const isEnd = (event: Event) => event.type === "session.status_idle" && event.stop_reason.type === "end_turn";
const clientOf = (url: string) => new Anthropic({ baseURL: url, apiKey: API_KEY, maxRetries: 0 });

const LOOK_UP = { type: "custom" as const, name: "look_up", description: "Looks something up.", input_schema: { type: "object" as const } };

async function newSession(client: Anthropic): Promise<string> {
  const agent = await client.beta.agents.create({
    name: "helper",
    model: "claude-haiku-4-5",
    tools: [{ type: "agent_toolset_20260401" }, LOOK_UP],
  });
  const environment = await client.beta.environments.create({ name: `home ${agent.id}` });
  return (await client.beta.sessions.create({ agent: agent.id, environment_id: environment.id })).id;
}

/** Reads a stream in the background until the turn is over. */
async function tail(client: Anthropic, id: string): Promise<{ readonly seen: Event[]; readonly ended: Promise<void> }> {
  const stream = await client.beta.sessions.events.stream(id, undefined, { signal: AbortSignal.timeout(TURN_MS) });
  const seen: Event[] = [];
  const ended = (async () => {
    for await (const event of stream) {
      seen.push(event);
      if (isEnd(event)) return;
    }
  })();
  return { seen, ended };
}

async function listed(client: Anthropic, id: string, query: Anthropic.Beta.Sessions.EventListParams = {}): Promise<Event[]> {
  const events: Event[] = [];
  for await (const event of client.beta.sessions.events.list(id, { limit: PAGE, ...query })) events.push(event);
  return events;
}

const idsOf = (events: readonly Event[]): string[] => events.map((event) => ("id" in event ? String(event.id) : event.type));
const placed = (events: readonly Event[]): Event[] => events.filter((event) => "processed_at" in event && event.processed_at !== null);

/** Thinking, a built-in tool that fails and one that works, a custom tool, a model that errs once. */
const EVERYTHING = [
  "think: I think about it.",
  "say: I look.",
  'call bash: {"command":"echo one; exit 3"}',
  "---",
  'call bash: {"command":"echo two"}',
  'call look_up: {"q":"a"}',
  "---",
  "error: 529 times=2",
  "say: done",
].join("\n");

function suite(name: string, start: (place: Place) => Promise<string>): void {
  describe(name, () => {
    const place = new Place();
    let client: Anthropic;
    beforeAll(async () => {
      client = clientOf(await start(await place.open()));
    });
    afterAll(() => place.close());

    test("stream and list show the same events in the same order, none of a type left out, each as the document says", async () => {
      const id = await newSession(client);
      const { seen, ended } = await tail(client, id);
      await client.beta.sessions.events.send(id, { events: [say(EVERYTHING)] });
      const call = await until(() => seen.find((event) => event.type === "agent.custom_tool_use"), { timeoutMs: TURN_MS });
      const content = [{ type: "text" as const, text: "found" }];
      await client.beta.sessions.events.send(id, {
        events: [{ type: "user.custom_tool_result", custom_tool_use_id: String("id" in call && call.id), content }],
      });
      await ended;

      const all = await listed(client, id);
      expect(idsOf(placed(seen))).toEqual(idsOf(all));
      const types = new Set(all.map(({ type }) => type));
      for (const type of [
        "agent.thinking",
        "agent.tool_use",
        "agent.tool_result",
        "agent.custom_tool_use",
        "user.custom_tool_result",
        "agent.message",
      ])
        expect(types).toContain(type);
      for (const type of ["session.error", "session.usage", "session.status_running", "span.model_request_end", "session.thread_status_idle"])
        expect(types).toContain(type);
      const document = (await (await fetch(`${client.baseURL}/openapi.json`)).json()) as Schema;
      const fits = judge(inlined(document, { $ref: "#/components/schemas/StreamedEvent" }, true));
      for (const event of [...seen, ...all]) expect([event, fits(JSON.parse(JSON.stringify(event)))]).toEqual([event, null]);
    });

    test("a list of 300 events is paged through, 20 at a time, in either order, with nothing twice and nothing missed", async () => {
      const id = await newSession(client);
      const sent: string[] = [];
      while (sent.length < EVENTS_MIN) {
        const answer = await client.beta.sessions.events.send(id, {
          events: Array.from({ length: 75 }, () => ({ type: "user.interrupt" as const })),
        });
        sent.push(...(answer.data ?? []).map((event) => String("id" in event && event.id)));
      }
      expect(idsOf(await listed(client, id))).toEqual(sent);
      expect(idsOf(await listed(client, id, { order: "desc" }))).toEqual(sent.toReversed());
      let pages = 0;
      for await (const page of (await client.beta.sessions.events.list(id, { limit: PAGE })).iterPages()) {
        pages += 1;
        expect(page.data.length).toBe(PAGE);
      }
      expect(pages).toBe(EVENTS_MIN / PAGE);
    });

    test("the tool runner runs each custom call once, and its results reach the model", async () => {
      const id = await newSession(client);
      const inputs: unknown[] = [];
      const tool = betaTool({
        name: "look_up",
        description: "Looks something up.",
        inputSchema: { type: "object", properties: { q: { type: "string" } } },
        run: (input) => {
          inputs.push(input);
          return `found ${input.q}`;
        },
      });
      const script = 'call look_up: {"q":"a"}\n---\ncall look_up: {"q":"b"}\ncall look_up: {"q":"c"}\n---\necho: the runner says ';
      await client.beta.sessions.events.send(id, { events: [say(script)] });
      const ran: string[] = [];
      for await (const done of client.beta.sessions.events.toolRunner(id, { tools: [tool], maxIdleMs: 500, signal: AbortSignal.timeout(TURN_MS) }))
        ran.push(`${done.name} ${done.posted} ${done.isError}`);
      expect(ran).toEqual(Array.from({ length: 3 }, () => "look_up true false"));
      expect(inputs).toHaveLength(3);
      expect(new Set(inputs.map((input) => JSON.stringify(input)))).toEqual(new Set(['{"q":"a"}', '{"q":"b"}', '{"q":"c"}']));
      const last = (await listed(client, id, { types: ["agent.message"] })).at(-1);
      const said = JSON.stringify(last);
      for (const text of ["the runner says", "found b", "found c"]) expect(said).toContain(text);
    });

    test("a parameter and a field that are not known are refused by name", async () => {
      const id = await newSession(client);
      const query = client.get(`/v1/sessions/${id}/events`, { query: { made_up: "1" } });
      await expect(query).rejects.toThrow(/made_up: Extra inputs are not permitted/);
      const events = [{ ...say("x"), made_up: 1 }];
      await expect(client.beta.sessions.events.send(id, { events })).rejects.toThrow(/events\.0\.made_up: Extra inputs are not permitted/);
    });
  });
}

suite("on the embedded store", (place) => place.node("one"));

needs("redis-server")("with Redis", () => {
  suite("through two gateways", async (place) => {
    const redis = await startRedis();
    place.onClose(() => redis.stop());
    const settings = { REDIS_URL: redis.url, MANYHANDS_KEYS_DIR: join(place.folder, "keys") };
    const nodes = await Promise.all(["one", "two"].map((name) => place.node(name, settings)));
    const proxy = await startRoundRobin(nodes);
    place.onClose(async () => {
      const counts = proxy.counts();
      await proxy.close();
      if (counts.some((count) => count < 20)) throw new Error(`a gateway was hardly asked: ${counts.join(", ")}`);
    });
    return proxy.url;
  });
});

describe("behind a proxy that cuts idle connections", () => {
  const place = new Place();
  afterAll(() => place.close());

  test("a silent stream stays open, also while a tool runs; its first byte comes at once and its comments leave no trace", async () => {
    const url = await (await place.open()).node("one");
    const proxy = await startTcpProxy(Number(new URL(url).port), { idleMs: IDLE_CUT_MS });
    place.onClose(() => proxy.close());
    const direct = clientOf(url);
    const id = await newSession(direct);

    // The proxy does cut: a connection on which nothing passes is gone.
    await once(connect(proxy.port, "127.0.0.1").resume(), "close", { signal: AbortSignal.timeout(TURN_MS) });
    expect(proxy.cuts).toBe(1);

    const asked = performance.now();
    const stop = new AbortController();
    place.onClose(async () => stop.abort());
    const response = await fetch(`http://127.0.0.1:${proxy.port}/v1/sessions/${id}/events/stream`, {
      headers: { "x-api-key": API_KEY },
      signal: stop.signal,
    });
    const parts: string[] = [];
    let isCut = false;
    const reading = (async () => {
      for await (const part of (response.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream())) parts.push(part);
    })();
    reading
      .catch(() => {})
      .finally(() => {
        isCut = true;
      });
    await until(() => parts.length > 0);
    expect(performance.now() - asked).toBeLessThan(1_000);
    expect(response.headers.get("content-type")).toMatch(/^text\/event-stream/);
    expect(response.headers.get("cache-control")).toContain("no-transform");
    expect(response.headers.get("x-accel-buffering")).toBe("no");

    const comments = () =>
      parts
        .join("")
        .split("\n\n")
        .filter((frame) => frame.startsWith(":")).length;
    const quiet = (3 * IDLE_CUT_MS) / KEEP_ALIVE_MS;
    await until(() => isCut || comments() > quiet, { timeoutMs: TURN_MS });
    const seconds = (2 * IDLE_CUT_MS) / 1000;
    await direct.beta.sessions.events.send(id, { events: [say(`call bash: {"command":"sleep ${seconds}; echo rested"}\n---\nsay: done`)] });
    await until(() => isCut || parts.join("").includes("end_turn"), { timeoutMs: TURN_MS });
    expect(isCut).toBe(false);

    const streamed = parts
      .join("")
      .split("\n\n")
      .flatMap((frame) => /^data: (.*)$/m.exec(frame)?.[1] ?? [])
      .map((data) => JSON.parse(data) as Event);
    const all = await listed(direct, id);
    expect(idsOf(placed(streamed))).toEqual(idsOf(all));
    expect(JSON.stringify(all)).toContain("rested");
  });
});
