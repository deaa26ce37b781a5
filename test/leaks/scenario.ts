// What happens before the search: every kind of credential is used in every way that there is, by servers that say it back, through failures and crashes.
//
//   N1  Crashes come first: what a program had in its memory when it was killed can't be looked at.
//   N2  After `givenAt` no secret passes the gateway any more: its heap is looked at a minute later.

import Anthropic from "@anthropic-ai/sdk";
import { mint } from "../../session-store/ids.ts";
import { connectClient } from "../support/mcp/clients.ts";
import { until } from "../support/until.ts";
import type { Canaries } from "./canaries.ts";
import { asking, LOOK_AROUND } from "./commands.ts";
import type { House } from "./house.ts";
import type { Outside } from "./outside.ts";

/** On a machine that does much else, too. */
const TURN_MS = 120_000;
const POLL_MS = 100;
const HOUR_MS = 3_600_000;
const SOON_MS = 1_500;
const TOOLSET = { type: "agent_toolset_20260401" } as const;
const SERVER_FORMS = ["plain", "gzip", "deflate", "br", "pieces", "error", "failed", "500", "notices", "escaped", "escaped-twice"];
const MODEL_FAULTS = ["400", "401", "429", "500", "packed", "page", "stream", "cut", "escaped", "escaped-twice"];

export interface Run {
  readonly house: House;
  readonly outside: Outside;
  readonly canaries: Canaries;
  /** How far it is. */
  tell(what: string): void;
}

export interface Played {
  readonly sessions: readonly string[];
  /** The one that did the most. */
  readonly main: string;
  /** N2, by performance.now(). */
  readonly givenAt: number;
}

export async function play(run: Run): Promise<Played> {
  const { outside } = run;
  const stage = new Stage(run);
  await stage.crashes();
  run.tell("crashes over");
  const given = await stage.give();
  await stage.register(given.vaultId);
  const session = await stage.open(given.vaultId, ["acme/private", "acme/echo"]);
  const givenAt = performance.now();
  run.tell("secrets handed over");
  const faults = MODEL_FAULTS.map(async (fault) => stage.turn(await stage.open(given.vaultId), [], `model-fault ${fault} ${mint("fault")}`));
  await stage.turn(session, [bash(LOOK_AROUND), bash(asking(outside))]);
  await stage.turn(session, [
    ...SERVER_FORMS.map((form) => echo("docs", form)),
    echo("mail", "plain"),
    echo("keeper", "plain"),
    echo("strict", "plain"),
  ]);
  run.tell("programs and servers asked");
  // The first token is good no more: it is renewed, and both are said back.
  given.mailTokens.delete("access token");
  await stage.turn(session, [echo("mail", "plain"), echo("mail", "pieces")]);
  // And then the renewed one is over by its time: the next renewal is refused, in words that say everything back.
  outside.renewal = null;
  await stage.expire(given);
  await stage.turn(session, [echo("mail", "plain")], "dump: messages");
  run.tell("tokens renewed");
  await Promise.all(faults);
  run.tell("models failed");
  await stage.doors(session);
  run.tell("MCP clients served");
  await stage.pages(given.vaultId);
  run.tell("pages read");
  await stage.leave();
  return { sessions: stage.sessions, main: session, givenAt };
}

const bash = (command: string): string => `call bash: ${JSON.stringify({ command })}`;
const echo = (server: string, text: string): string => `call mcp__${server}__echo: ${JSON.stringify({ text })}`;

interface Given {
  readonly vaultId: string;
  readonly mail: string;
  /** What the server takes. */
  readonly mailTokens: Set<string>;
}

class Stage {
  readonly sessions: string[] = [];
  /** What clients use: behind a tap. */
  readonly #client: Anthropic;
  /** Who hands secrets over. */
  readonly #owner: Anthropic;
  readonly #run: Run;
  readonly #left = new AbortController();
  readonly #following: Promise<void>[] = [];
  #servers: Readonly<Record<string, string>> = {};
  #keeperUrl = "";

  constructor(run: Run) {
    const { house } = run;
    this.#run = run;
    this.#client = new Anthropic({ baseURL: house.url, apiKey: house.apiKey, maxRetries: 4 });
    this.#owner = new Anthropic({ baseURL: house.own, apiKey: house.apiKey, maxRetries: 4 });
  }

  /** N1 */
  async crashes(): Promise<void> {
    const { house, outside, canaries } = this.#run;
    const docs = await outside.server("docs", new Set(["bearer", "early bearer"]));
    this.#servers = { docs: docs.url };
    const vault = await this.#owner.beta.vaults.create({ display_name: "Early" });
    const auth = { type: "static_bearer" as const, mcp_server_url: docs.url, token: canaries.of("early bearer") };
    await this.#owner.beta.vaults.credentials.create(vault.id, { auth });
    const session = await this.open(vault.id);
    await this.turn(session, [bash("echo begun"), echo("docs", "plain")]);
    await this.#say(session, ["call mcp__docs__slow: {}"]);
    await until(() => outside.stalled > 0, { timeoutMs: TURN_MS, what: "a call that hangs" });
    await house.restart("vault-proxy");
    await this.#rests(session);
    await this.#say(session, [bash("sleep 2; echo slept"), echo("docs", "plain")]);
    await house.restart("hands");
    await this.#rests(session);
    await this.#say(session, [bash("sleep 2; echo slept")]);
    if (house.kind === "apart") await house.restart("worker");
    await house.restart("gateway");
    await this.#rests(session);
  }

  /** Hands over one secret of each kind. */
  async give(): Promise<Given> {
    const { outside, canaries } = this.#run;
    const mailTokens = new Set(["access token", "renewed access token"]);
    const mail = await outside.server("mail", mailTokens);
    const keeper = await outside.server("keeper", new Set(["keeper bearer"]));
    const strict = await outside.server("strict", new Set(["bearer of nobody"]));
    this.#keeperUrl = keeper.url;
    this.#servers = { ...this.#servers, mail: mail.url, strict: strict.url, keeper: "hand:keeper" };
    const { vaults } = this.#owner.beta;
    const { id } = await vaults.create({ display_name: "Main" });
    const secret = (name: string) => canaries.of(name);
    const give = async (auth: Anthropic.Beta.Vaults.CredentialCreateParams["auth"]) => (await vaults.credentials.create(id, { auth })).id;
    await give({ type: "static_bearer", mcp_server_url: this.#servers.docs ?? "", token: secret("bearer") });
    await give({ type: "static_bearer", mcp_server_url: strict.url, token: secret("wrong bearer") });
    await give({ type: "static_bearer", mcp_server_url: keeper.url, token: secret("keeper bearer") });
    outside.renewal = { access: "renewed access token", refresh: "renewed refresh token" };
    const mailId = await give({
      type: "mcp_oauth",
      mcp_server_url: mail.url,
      access_token: secret("access token"),
      expires_at: new Date(Date.now() + HOUR_MS).toISOString(),
      refresh: {
        token_endpoint: outside.tokenEndpoint,
        client_id: "client",
        refresh_token: secret("refresh token"),
        token_endpoint_auth: { type: "client_secret_basic", client_secret: secret("client secret") },
      },
    });
    const networking = { type: "limited" as const, allowed_hosts: ["127.0.0.1", "localhost"] };
    await give({ type: "environment_variable", secret_name: "API_TOKEN", secret_value: secret("environment secret"), networking });
    await give({ type: "environment_variable", secret_name: "PASSWORD", secret_value: secret("password"), networking });
    return { vaultId: id, mail: mailId, mailTokens };
  }

  async expire({ vaultId, mail }: Given): Promise<void> {
    const { credentials } = this.#client.beta.vaults;
    const endsAt = Date.now() + SOON_MS;
    await credentials.update(mail, { vault_id: vaultId, auth: { type: "mcp_oauth", expires_at: new Date(endsAt).toISOString() } });
    await until(() => Date.now() > endsAt);
    await credentials.mcpOAuthValidate(mail, { vault_id: vaultId });
  }

  async register(vaultId: string): Promise<void> {
    const body = { name: "keeper", transport: { type: "http", url: this.#keeperUrl }, sharing: "shared", vault_ids: [vaultId] };
    const answer = await this.#ask("POST", "/v1/hands", body);
    if (!answer.ok) throw new Error(`The hand was not registered: ${answer.status}`);
  }

  /** A session with these vaults, whose stream somebody follows. */
  async open(vaultId: string, repositories: readonly string[] = []): Promise<string> {
    const { outside, canaries } = this.#run;
    const { agents, environments } = this.#client.beta;
    const names = Object.keys(this.#servers);
    const allowed = { permission_policy: { type: "always_allow" as const } };
    const agent = await agents.create({
      name: "Leaks",
      model: "scripted-model",
      tools: [TOOLSET, ...names.map((name) => ({ type: "mcp_toolset" as const, mcp_server_name: name, default_config: allowed }))],
      mcp_servers: names.map((name) => ({ type: "url" as const, name, url: this.#servers[name] ?? "" })),
    });
    const networking = { type: "limited" as const, allowed_hosts: [outside.hostUrl, outside.secureUrl].map((url) => new URL(url).host) };
    const environment = await environments.create({ name: mint("leaks"), config: { type: "cloud", networking } });
    const resources = repositories.map((path) => ({
      type: "github_repository" as const,
      url: `${outside.git.url}/${path}`,
      authorization_token: canaries.of("git token"),
    }));
    const session = { agent: agent.id, environment_id: environment.id, vault_ids: [vaultId], ...(resources.length === 0 ? {} : { resources }) };
    const { id } = await this.#owner.beta.sessions.create(session);
    this.sessions.push(id);
    this.#following.push(this.#follow(id));
    return id;
  }

  /** Says it and waits until nothing of it is left to do. */
  async turn(session: string, calls: readonly string[], more = ""): Promise<void> {
    await this.#say(session, calls, more);
    await this.#rests(session);
  }

  /** MCP clients of every door, in both eras. */
  async doors(session: string): Promise<void> {
    const { house } = this.#run;
    const headers = { authorization: `Bearer ${house.apiKey}` };
    for (const era of ["handshake", "stateless"] as const) {
      const main = await connectClient(era, `${house.url}/mcp`, { headers });
      await main.call("get_events", { session_id: session });
      await main.call("send_message", { session_id: session, message: `${echo("docs", "plain")}\nsay: done\n${mint("turn")}` });
      await main.close();
      const hand = await connectClient(era, `${house.url}/mcp/hands/keeper`, { headers });
      // Some of them fail: in words that are looked at, like all others.
      for (const text of SERVER_FORMS) await hand.call("echo", { text }).catch(() => null);
      await hand.close();
    }
    const own = await connectClient("stateless", `${house.url}/mcp/sessions/${session}`, { headers });
    await own.call("bash", { command: "env; cat /proc/*/environ" });
    await own.call("mcp__docs__echo", { text: "plain" });
    await own.close();
  }

  /** What else there is to read. */
  async pages(vaultId: string): Promise<void> {
    const paths = [
      ...[
        "/v1/vaults",
        `/v1/vaults/${vaultId}`,
        `/v1/vaults/${vaultId}/credentials`,
        "/v1/agents",
        "/v1/environments",
        "/v1/sessions",
        "/v1/hands",
        "/v1/hands/keeper",
      ],
      ...["/healthz", "/readyz", "/metrics", "/openapi.json", "/no-such-page"],
      ...this.sessions.flatMap((id) => [`/v1/sessions/${id}`, `/v1/sessions/${id}/events?limit=1000`]),
    ];
    for (const path of paths) await (await this.#ask("GET", path)).arrayBuffer();
    await (await this.#ask("POST", "/v1/hands/keeper/check", {})).arrayBuffer();
  }

  async leave(): Promise<void> {
    this.#left.abort();
    await Promise.all(this.#following);
  }

  async #say(session: string, calls: readonly string[], more = ""): Promise<void> {
    const text = [...calls, more, "say: done", mint("turn")].join("\n");
    await this.#client.beta.sessions.events.send(session, { events: [{ type: "user.message", content: [{ type: "text", text }] }] });
  }

  async #rests(session: string): Promise<void> {
    const { sessions } = this.#client.beta;
    await until(
      async () => {
        if ((await sessions.retrieve(session)).status !== "idle") return false;
        for await (const event of sessions.events.list(session, { limit: 1_000 }))
          if ("processed_at" in event && event.processed_at === null) return false;
        return true;
      },
      { timeoutMs: TURN_MS, pollMs: POLL_MS, what: `session ${session} idle` },
    );
  }

  #ask(method: string, path: string, body?: object): Promise<Response> {
    const { house } = this.#run;
    const headers = { "x-api-key": house.apiKey, ...(body === undefined ? {} : { "content-type": "application/json" }) };
    return fetch(`${house.url}${path}`, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
  }

  /** Reads the session's stream with its previews, again after every break. */
  async #follow(session: string): Promise<void> {
    const { house } = this.#run;
    while (!this.#left.signal.aborted)
      try {
        const path = `/v1/sessions/${session}/events/stream?event_deltas=agent.message&event_deltas=agent.thinking`;
        const answer = await fetch(`${house.url}${path}`, { headers: { "x-api-key": house.apiKey }, signal: this.#left.signal });
        for await (const _piece of answer.body ?? []);
      } catch {
        // The gateway is away for a moment, or it is over.
        await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      }
  }
}
