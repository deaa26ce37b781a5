// What every case plays on: an installation of real processes, the scripted model in this process, and the official SDK as the client.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { z } from "zod";
import { mint } from "../../../session-store/ids.ts";
import { Installation, rolesOf, type StoreKind } from "../../chaos/installation.ts";
import { WireEvent } from "../../chaos/wire-checkers.ts";
import { type ModelOptions, type ScriptedModel, startModel } from "../../support/model/server.ts";
import { until } from "../../support/until.ts";

export interface StageOptions {
  readonly store?: StoreKind;
  readonly leaseMs?: number;
  /** Settings of the installation's programs. */
  readonly env?: Readonly<Record<string, string>>;
  /** A Redis of the caller's own, which the programs use in place of the installation's. */
  readonly redisUrl?: string;
  readonly model?: ModelOptions;
}

/** As shipped: a crash of the embedded store's one node is noticed without it. */
const LEASE_MS = 15_000;
const SETTLED_MS = 45_000;
const POLL_MS = 50;
const REQUESTS_MAX = 1_000;

/** The agent's built-in tools, all allowed. */
export const TOOLSET = { type: "agent_toolset_20260401" } as const;
export const LOOK_UP = { type: "custom", name: "look_up", description: "Looks something up.", input_schema: { type: "object" } } as const;

/** The built-in tools with these ones asking first. */
export const asking = (...names: ("bash" | "read" | "write")[]) => ({
  ...TOOLSET,
  configs: names.map((name) => ({ name, permission_policy: { type: "always_ask" as const } })),
});

type AgentTools = NonNullable<Anthropic.Beta.AgentCreateParams["tools"]>;
type EventType = NonNullable<Anthropic.Beta.Sessions.EventListParams["types"]>[number];
type Sent = Anthropic.Beta.Sessions.EventSendParams["events"][number];

export class Stage {
  readonly installation: Installation;
  readonly model: ScriptedModel;
  readonly client: Anthropic;
  readonly #work: string;

  private constructor(installation: Installation, model: ScriptedModel, work: string) {
    this.installation = installation;
    this.model = model;
    this.client = this.clientOf();
    this.#work = work;
  }

  /** Everything up. */
  static async open({ store = "embedded", leaseMs = LEASE_MS, env = {}, redisUrl, model: play = {} }: StageOptions = {}): Promise<Stage> {
    const work = await mkdtemp(join(tmpdir(), "manyhands-case-"));
    const model = await startModel(play);
    const settings = redisUrl === undefined ? env : { ...env, REDIS_URL: redisUrl };
    const stage = new Stage(await Installation.make({ store, work, modelUrl: model.url, leaseMs, env: settings }), model, work);
    try {
      if (redisUrl === undefined) await stage.installation.startMissing();
      else for (const role of rolesOf(store)) if (role !== "redis") await stage.installation.start(role);
    } catch (error) {
      await stage.close();
      throw error;
    }
    return stage;
  }

  /** A client of the installation, or of a proxy before it. */
  clientOf(url = this.installation.url, maxRetries = 0): Anthropic {
    return new Anthropic({ baseURL: url, apiKey: this.installation.apiKey, maxRetries });
  }

  async session(tools: AgentTools = [], fields: { readonly system?: string } = {}): Promise<CaseSession> {
    const { agents, environments, sessions } = this.client.beta;
    const [agent, environment] = await Promise.all([
      agents.create({ name: "Case", model: "scripted-model", tools, ...fields }),
      environments.create({ name: mint("case") }),
    ]);
    const { id } = await sessions.create({ agent: agent.id, environment_id: environment.id });
    return new CaseSession(this, id);
  }

  /** A session that the caller made. */
  known(id: string): CaseSession {
    return new CaseSession(this, id);
  }

  /** kill -9 of a program, and the same program again. */
  async restart(role: "node" | "worker" | "gateway" | "hands"): Promise<void> {
    await this.installation.kill(role);
    await this.installation.startMissing();
  }

  async close(): Promise<void> {
    await this.installation[Symbol.asyncDispose]();
    await this.model.close();
    await rm(this.#work, { recursive: true, force: true });
  }
}

const Body = z.looseObject({
  system: z.unknown().optional(),
  tools: z.array(z.looseObject({ name: z.string() })).optional(),
  messages: z.array(z.looseObject({ role: z.string(), content: z.array(z.looseObject({ type: z.string() })) })),
});
export type ModelBody = z.infer<typeof Body>;
export type ModelBlock = ModelBody["messages"][number]["content"][number];

export interface Asked {
  readonly at: number;
  readonly body: ModelBody;
  readonly rejected: string | null;
}

export class CaseSession {
  readonly id: string;
  readonly stage: Stage;
  /** Stands in what is said, and so in every model request of this session. */
  readonly nonce = mint("case");

  constructor(stage: Stage, id: string) {
    this.stage = stage;
    this.id = id;
  }

  get #events() {
    return this.stage.client.beta.sessions.events;
  }

  /** Sends a message with a script of the scripted model; gives it as stored. */
  async say(script: string): Promise<WireEvent> {
    const [stored] = await this.send({ type: "user.message", content: [{ type: "text", text: `${script}\n(${this.nonce})` }] });
    if (!stored) throw new Error("an answer without an event");
    return stored;
  }

  async send(...events: Sent[]): Promise<readonly WireEvent[]> {
    const { data } = await this.#events.send(this.id, { events });
    return z.array(WireEvent).parse(data);
  }

  interrupt(): Promise<readonly WireEvent[]> {
    return this.send({ type: "user.interrupt" });
  }

  async status(): Promise<string> {
    return (await this.stage.client.beta.sessions.retrieve(this.id)).status;
  }

  async events(...types: EventType[]): Promise<readonly WireEvent[]> {
    const events: WireEvent[] = [];
    for await (const event of this.#events.list(this.id, { limit: 1000, ...(types.length > 0 ? { types } : {}) }))
      events.push(WireEvent.parse(event));
    return events;
  }

  eventsOf(type: EventType): Promise<readonly WireEvent[]> {
    return this.events(type);
  }

  /** Waits for the nth event of a type. */
  async has(type: EventType, nth = 1, timeoutMs = SETTLED_MS): Promise<WireEvent> {
    return until(async () => (await this.eventsOf(type))[nth - 1], { timeoutMs, pollMs: POLL_MS, what: `${type} number ${nth} in ${this.id}` });
  }

  /** Waits until the session is idle. Lighter than `settled` where events hold a lot; what was sent was applied if no idle waits for answers. */
  rested(timeoutMs = SETTLED_MS): Promise<boolean> {
    return until(async () => (await this.status()) === "idle", { timeoutMs, pollMs: POLL_MS, what: `session ${this.id} idle` });
  }

  /** Waits until the session is idle and all that was sent is applied; gives its events. */
  async settled(timeoutMs = SETTLED_MS): Promise<readonly WireEvent[]> {
    let events: readonly WireEvent[] = [];
    return until(
      async () => {
        if ((await this.status()) !== "idle") return null;
        events = await this.events();
        return events.every(({ processed_at: at }) => at !== null) ? events : null;
      },
      { timeoutMs, pollMs: POLL_MS, what: () => `session ${this.id} idle; its last events: ${JSON.stringify(events.slice(-6))}` },
    );
  }

  /** A whole turn; gives the last words. */
  async turn(script: string, timeoutMs = SETTLED_MS): Promise<string> {
    await this.say(script);
    // Idle alone is also what it is before a worker takes it up.
    await this.settled(timeoutMs);
    return this.lastWords();
  }

  async lastWords(): Promise<string> {
    const last = (await this.eventsOf("agent.message")).at(-1);
    return last ? textOf(last.content) : "";
  }

  /** The text of every result, in order. */
  async results(): Promise<readonly { readonly text: string; readonly isError: boolean }[]> {
    const events = await this.events();
    return events
      .filter(({ type }) => type.endsWith("tool_result"))
      .map((event) => ({ text: textOf(event.content), isError: event.is_error === true }));
  }

  /** What the model was asked for this session, in order. */
  requests(): readonly Asked[] {
    return this.stage.model
      .requests({ contains: this.nonce, limit: REQUESTS_MAX })
      .map(({ at, body, rejected }) => ({ at: Date.parse(at), body: Body.parse(body), rejected: rejected ?? null }));
  }

  lastRequest(): ModelBody {
    const last = this.requests().at(-1);
    if (!last) throw new Error("The model was not asked.");
    return last.body;
  }
}

const Content = z.array(z.looseObject({ type: z.string(), text: z.string().optional() }));

/** The texts of content blocks; other blocks by their type in brackets. */
export function textOf(content: unknown): string {
  const read = Content.safeParse(content);
  return read.success ? read.data.map(({ type, text }) => text ?? `[${type}]`).join("\n") : "";
}

/** Types in order, without those that come with every turn. */
export const stopsOf = (events: readonly WireEvent[]): readonly string[] =>
  events.filter(({ type }) => type === "session.status_idle").map((event) => z.looseObject({ type: z.string() }).parse(event.stop_reason).type);

const Failure = z.looseObject({ type: z.string(), message: z.string(), retry_status: z.looseObject({ type: z.string() }) });
export const errorsOf = (events: readonly WireEvent[]) =>
  events
    .filter(({ type }) => type === "session.error")
    .map((event) => Failure.parse(event.error))
    .map(({ type, message, retry_status }) => ({ type, message, retry: retry_status.type }));

/** The results in a request, by the model's own ids; each block that is a tool_result. */
export const resultsIn = (body: ModelBody): readonly ModelBlock[] =>
  body.messages.flatMap(({ content }) => content.filter(({ type }) => type === "tool_result"));
