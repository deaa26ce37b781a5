// One lane of the fuzz: it sends one request after the other, about objects of its own, and keeps what was acknowledged.

import { z } from "zod";
import { isSchema } from "../support/json-schema.ts";
import type { Asked, Kind } from "./requests.ts";

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Buffer | null;
  readonly key: Asked["key"];
}
export interface Answered {
  readonly status: number;
  readonly requestId: string;
  readonly text: string;
  readonly isStream: boolean;
}
export type Caller = (sent: Sent) => Promise<Answered>;

type Judge = (value: unknown) => string | null;

export interface LaneOptions {
  readonly at: number;
  readonly call: Caller;
  readonly acknowledged: Acknowledged;
  readonly judges: { readonly answers: ReadonlyMap<string, Judge>; readonly error: Judge };
  readonly blame: (fault: string) => void;
}

/** How many objects of a kind a lane speaks of: the newest. */
const KNOWN_MAX = 3;
const COMPARE_EVERY = 10;
const PAGE = 100;
const SESSIONS_CHECKED_MAX = 300;

const Made = z.looseObject({ id: z.string() });
const Page = z.looseObject({ data: z.array(z.looseObject({ id: z.string(), type: z.string() })), next_page: z.string().nullable() });

/** What was acknowledged by all lanes, and whether the lists hold just that. F2 */
export class Acknowledged {
  readonly #made = {
    agent: new Set<string>(),
    environment: new Set<string>(),
    session: new Set<string>(),
    vault: new Set<string>(),
    hand: new Set<string>(),
  };
  readonly #deleted = new Set<string>();
  readonly #events = new Map<string, Set<string>>();
  readonly #initial = new Map<string, number>();
  compared = 0;

  made(kind: "agent" | "environment" | "session" | "vault" | "hand", id: string, initialEvents = 0): void {
    this.#made[kind].add(id);
    if (initialEvents > 0) this.#initial.set(id, initialEvents);
  }

  deleted(id: string): void {
    this.#deleted.add(id);
  }

  received(session: string, ids: readonly string[]): void {
    const known = this.#events.get(session) ?? new Set();
    for (const id of ids) known.add(id);
    this.#events.set(session, known);
  }

  async misfits(call: Caller): Promise<readonly string[]> {
    const faults: string[] = [];
    for (const kind of ["agent", "environment", "session", "vault", "hand"] as const) {
      const listed = new Set(await idsOf(call, `/v1/${kind}s?limit=${PAGE}${kind === "hand" ? "" : "&include_archived=true"}`));
      const expected = [...this.#made[kind]].filter((id) => !this.#deleted.has(id));
      for (const id of expected) if (!listed.has(id)) faults.push(`${kind} ${id} was acknowledged and is not there`);
      for (const id of listed) if (!this.#made[kind].has(id)) faults.push(`${kind} ${id} is there and was never acknowledged`);
    }
    const sessions = [...this.#made.session].filter((id) => !this.#deleted.has(id)).slice(-SESSIONS_CHECKED_MAX);
    for (const id of sessions) {
      const types = ["user.message", "user.interrupt", "user.tool_confirmation", "user.custom_tool_result", "user.define_outcome", "system.message"];
      const listed = await idsOf(call, `/v1/sessions/${id}/events?${types.map((type) => `types[]=${type}`).join("&")}`);
      const sent = this.#events.get(id) ?? new Set();
      const unknown = listed.filter((each) => !sent.has(each));
      const lost = [...sent].filter((each) => !listed.includes(each));
      const initial = this.#initial.get(id) ?? 0;
      if (unknown.length !== initial)
        faults.push(`session ${id} was made with ${initial} events and holds, never acknowledged: ${unknown.join(", ")}`);
      if (lost.length > 0) faults.push(`session ${id} has lost ${lost.join(", ")}`);
    }
    return faults;
  }
}

async function idsOf(call: Caller, path: string): Promise<readonly string[]> {
  const ids: string[] = [];
  let next: string | null = "";
  while (next !== null) {
    const answer = await call({ method: "GET", path: `${path}${next && `&page=${next}`}`, headers: {}, body: null, key: "right" });
    const page: z.infer<typeof Page> = Page.parse(JSON.parse(answer.text));
    ids.push(...page.data.map(({ id }) => id));
    next = page.next_page;
  }
  return ids;
}

export class Lane {
  readonly #options: LaneOptions;
  readonly #known: Readonly<Record<Kind, string[]>> = { agent: [], environment: [], session: [], event: [], vault: [], credential: [], hand: [] };
  /** Which vault a credential is in. */
  readonly #vaultOf = new Map<string, string>();
  #fresh = 0;
  #refused = 0;

  constructor(options: LaneOptions) {
    this.#options = options;
  }

  /** Objects to begin with. */
  async prepare(): Promise<void> {
    const make = async (kind: "agent" | "environment" | "session" | "vault" | "hand", body: unknown) => {
      const answer = await this.#call("POST", `/v1/${kind}s`, JSON.stringify(body));
      const { id } = Made.parse(JSON.parse(answer.text));
      this.#options.acknowledged.made(kind, id);
      this.#know(kind, id);
      return id;
    };
    const agent = await make("agent", { name: "fuzz", model: "claude-haiku-4-5", tools: [{ type: "agent_toolset_20260401" }] });
    const environment = await make("environment", { name: this.#unique() });
    await make("vault", { display_name: this.#unique() });
    // Nobody is there: it is known all the same.
    await make("hand", {
      name: `hand-${this.#options.at}`,
      transport: { type: "http", url: "http://127.0.0.1:9/mcp" },
      timeouts: { connect_ms: 1_000 },
      allow_unreachable: true,
    });
    await make("session", { agent, environment_id: environment });
  }

  /** Sends one request and looks at what comes. Gives the status. */
  async send(asked: Asked): Promise<number> {
    const { operation, method, key } = asked;
    const path = this.#filled(asked.target);
    const body = typeof asked.body === "string" ? this.#filled(asked.body) : asked.body;
    const headers = Object.fromEntries(Object.entries(asked.headers).map(([name, value]) => [name, this.#filled(value)]));
    const subject = asked.isOnTarget && operation.id.endsWith(".update") && this.#refused % COMPARE_EVERY === 0 ? path.split("?")[0] : undefined;
    const before = subject === undefined ? null : await this.#call("GET", subject);
    const answer = await this.#options.call({ method, path, headers, body, key }).catch((error: unknown) => String(error));
    const about = `${method} ${path.slice(0, 200)} ${JSON.stringify(headers)} ${String(body).slice(0, 500)}`;
    if (typeof answer === "string") {
      this.#options.blame(`no answer (${answer}): ${about}`);
      return 0;
    }
    if (answer.status >= 400) {
      this.#refused += 1;
      this.#checkRefusal(answer, about);
      if (subject !== undefined && before) await this.#compare(subject, before, about);
    } else if (asked.isOnTarget && !answer.isStream) this.#checkAnswer(asked, { path, body, answer, about });
    return answer.status;
  }

  #checkRefusal(answer: Answered, about: string): void {
    const { judges, blame } = this.#options;
    if (answer.status >= 500) blame(`${answer.status} ${answer.text}: ${about}`);
    const body = parsed(answer.text);
    const misfit = judges.error(body);
    if (misfit !== null) blame(`${answer.status} without an envelope (${misfit}): ${answer.text.slice(0, 300)}: ${about}`);
    else if (!isSchema(body) || body.request_id !== answer.requestId) blame(`another request id in the body than ${answer.requestId}: ${about}`);
  }

  #checkAnswer(
    { operation }: Asked,
    { path, body, answer, about }: { path: string; body: string | Buffer | null; answer: Answered; about: string },
  ): void {
    const { judges, blame, acknowledged } = this.#options;
    const given = parsed(answer.text);
    const misfit = judges.answers.get(operation.id)?.(given) ?? null;
    if (misfit !== null) blame(`an answer that the document does not know (${misfit}): ${answer.text.slice(0, 500)}: ${about}`);
    const [resource, ...verbs] = operation.id.split(".");
    const verb = verbs.join(".");
    if (verb === "create") {
      const { id } = Made.parse(given);
      const kind =
        resource === "agents"
          ? "agent"
          : resource === "environments"
            ? "environment"
            : resource === "vaults"
              ? "vault"
              : resource === "hands"
                ? "hand"
                : "session";
      const sent = parsed(String(body));
      const initial = isSchema(sent) && Array.isArray(sent.initial_events) ? sent.initial_events.length : 0;
      acknowledged.made(kind, id, initial);
      this.#know(kind, id);
    }
    if (verb === "credentials.create") {
      const { id } = Made.parse(given);
      this.#vaultOf.set(id, path.split("/")[3] ?? "");
      this.#know("credential", id);
    }
    if (verb === "delete") acknowledged.deleted(Made.parse(given).id);
    if (/^(credentials\.)?(archive|delete)$/.test(verb)) this.#forget(Made.parse(given).id);
    if (operation.id === "sessions.events.send") {
      const { data } = Page.pick({ data: true }).parse(given);
      acknowledged.received(
        path.split("/")[3]?.split("?")[0] ?? "",
        data.map(({ id }) => id),
      );
      for (const { id } of data) this.#know("event", id);
    }
  }

  /** What a client set is as it was; times and state go on by themselves. F2 */
  async #compare(subject: string, before: Answered, about: string): Promise<void> {
    const after = await this.#call("GET", subject);
    this.#options.acknowledged.compared += 1;
    const [one, other] = [before, after].map(({ status, text }) => JSON.stringify([status, settings(parsed(text))]));
    if (one !== other) this.#options.blame(`a refused request changed ${subject} from ${one} to ${other}: ${about}`);
  }

  #call(method: string, path: string, body: string | null = null): Promise<Answered> {
    return this.#options.call({ method, path, headers: {}, body, key: "right" });
  }

  #know(kind: Kind, id: string): void {
    const known = this.#known[kind];
    if (!known.includes(id)) known.unshift(id);
    known.splice(KNOWN_MAX);
  }

  /** What is archived or gone is not spoken of any more, as long as there is something else. */
  #forget(id: string): void {
    for (const known of Object.values(this.#known)) if (known.length > 1 && known.includes(id)) known.splice(known.indexOf(id), 1);
  }

  #unique(): string {
    return `fuzz ${this.#options.at} ${this.#fresh++}`;
  }

  #filled(text: string): string {
    const credential = /@credential:(\d)/.exec(text)?.[1];
    const inside = credential === undefined ? undefined : this.#known.credential[Number(credential) % Math.max(1, this.#known.credential.length)];
    return text.replace(/@(agent|environment|session|event|thread|vault|credential|hand|fresh):(\d)/g, (_all, kind: string, at: string) => {
      if (kind === "fresh") return this.#unique();
      // A credential is found in its own vault.
      if (kind === "vault" && inside !== undefined) return this.#vaultOf.get(inside) ?? "vlt_x";
      const known = this.#known[kind === "thread" ? "session" : (kind as Kind)];
      const id = known[Number(at) % Math.max(1, known.length)] ?? `${kind}_x`;
      return kind === "thread" ? id.replace("sesn_", "sthr_") : id;
    });
  }
}

function settings(body: unknown): unknown {
  if (!isSchema(body)) return body;
  const { name, display_name, auth, description, title, metadata, agent, config, version, tools, system, model } = body;
  return { name, display_name, auth, description, title, metadata, agent, config, version, tools, system, model };
}

function parsed(text: string): unknown {
  try {
    // A byte order mark is passed over by the server, too.
    return JSON.parse(text.replace(/^\ufeff/, ""));
  } catch {
    return undefined;
  }
}
