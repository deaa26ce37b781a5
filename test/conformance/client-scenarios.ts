// The client of the official conformance suite: our own parts, put to the scenario that it names (client-host.ts).
//
//   Scenarios of MCP itself are run by a server's hand as agents have it (hands/servers/). Two of them ask the client something: an agent's connection
//   offers nothing that a server could ask for, so there the same transport carries a client that does.
//   Scenarios of authorization are run by the vault proxy's connector, with a browser that follows one redirect; the token goes into requests the way
//   the vault proxy puts it there, and a server that wants more is given more, a few times.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { z } from "zod";
import { Connection } from "../../hands/servers/connection.ts";
import { type Fetch, Reach } from "../../hands/servers/reach.ts";
import { WatchedTransport } from "../../hands/servers/watched.ts";
import { Guard } from "../../vault-proxy/guard.ts";
import { challengeIn } from "../../vault-proxy/oauth/challenge.ts";
import { Connector } from "../../vault-proxy/oauth/connector.ts";
import { Reach as VaultReach } from "../../vault-proxy/reach.ts";
import { FRESH, openUrl } from "../support/mcp/hand.ts";
import { ownVault } from "../support/own-vault.ts";

/** For one scenario. */
const RUN_MS = 110_000;
/** How often a server may ask for another authorization. */
const AUTHORIZATIONS_MAX = 3;
const REDIRECT = "http://127.0.0.1:3000/callback";
const DOCUMENT = { url: "https://conformance-test.local/client-metadata.json", redirectUri: REDIRECT };
/** Extensions of the protocol; the suite does not score them. */
const NOT_OFFERED = /^auth\/(client-credentials|enterprise|dpop|wif)/;
const OWNER = "the suite";
const HEARD = { toolsChanged() {}, closed() {}, stray() {}, trouble() {} };
/** By the type of an argument. */
const SAMPLES: Readonly<Record<string, unknown>> = { number: 1.5, integer: 1, boolean: true, array: [], object: {}, null: null };

const Context = z.looseObject({
  toolCalls: z.array(z.object({ name: z.string(), arguments: z.record(z.string(), z.unknown()) })).optional(),
  client_id: z.string().optional(),
  client_secret: z.string().optional(),
});
const Listed = z.looseObject({ tools: z.array(z.object({ name: z.string(), inputSchema: z.unknown() })) });

/** What the suite says to a client that it starts. */
export const Asked = z.object({ url: z.url(), scenario: z.string(), context: z.string() });
export type Asked = z.infer<typeof Asked>;

interface Play {
  readonly url: URL;
  readonly context: z.infer<typeof Context>;
  readonly signal: AbortSignal;
  say(line: string): void;
}

/** Rejects when the scenario can't be played; whether it was played well, the suite knows. */
export async function playScenario(asked: Asked, say: (line: string) => void): Promise<void> {
  const { scenario } = asked;
  const play: Play = {
    url: new URL(asked.url),
    context: Context.parse(JSON.parse(asked.context)),
    signal: AbortSignal.timeout(RUN_MS),
    say,
  };
  if (NOT_OFFERED.test(scenario)) throw new Error("this way of authorization is an extension that is not offered");
  if (scenario.startsWith("auth/")) await authorized(play);
  else if (scenario === "elicitation-sep1034-client-defaults" || scenario === "sep-2322-client-request-state") await askedBack(play);
  else await asAgent(play);
}

/** Lists and calls as a session does. */
async function asAgent({ url, context, say }: Play): Promise<void> {
  const { hand, call } = openUrl(url.href, { connectMs: 60_000, idleMs: 60_000, totalMs: 60_000 });
  const listed = await hand.listTools({ ...FRESH, waitMs: 60_000 });
  if (listed.type !== "ready") throw new Error(`no list: ${JSON.stringify(listed)}`);
  const calls = context.toolCalls ?? listed.tools.map(({ name, input_schema }) => ({ name, arguments: argumentsFor(input_schema) }));
  for (const each of calls) {
    const outcome = await call(each.name, each.arguments);
    say(`${each.name}: ${outcome.type}`);
  }
  await hand.stop("the scenario is over");
}

/** A client that lets itself be asked, over the transport that agents have. */
async function askedBack({ url, signal, say }: Play): Promise<void> {
  const reach = new Reach(["*"], 30_000);
  const client = new Client(
    { name: "manyhands", version: "1" },
    { capabilities: { elicitation: { form: { applyDefaults: true } } }, versionNegotiation: { mode: "auto" } },
  );
  client.setRequestHandler("elicitation/create", async () => ({ action: "accept", content: {} }));
  const wire = new WatchedTransport(new StreamableHTTPClientTransport(url, { fetch: reach.fetch }));
  await client.connect(wire, { signal });
  const take = async (method: string, params: Record<string, unknown>) =>
    wire.takeRaw(await client.request({ method, params }, z.looseObject({ _meta: z.record(z.string(), z.unknown()).optional() }), { signal }));
  const { tools } = Listed.parse(await take("tools/list", {}));
  for (const { name } of tools) say(`${name}: ${JSON.stringify(await take("tools/call", { name, arguments: {} }))}`);
  await client.close();
  await reach.close();
}

async function authorized({ url, context, signal, say }: Play): Promise<void> {
  const reach = new Reach(["*"], 30_000);
  const guard = new Guard(new VaultReach([url.hostname]));
  const store = ownVault();
  const connector = new Connector({ guard, store, document: DOCUMENT });
  const held: { token: string | null; scope: string | null; times: number } = { token: null, scope: null, times: 0 };

  const connect = async (scope: string | null): Promise<void> => {
    const client = context.client_id === undefined ? null : { client_id: context.client_id, client_secret: context.client_secret };
    const more = [held.scope, scope].filter((each) => each !== null).join(" ") || null;
    const { authorizationUrl } = await connector.start({ server: url, redirectUri: REDIRECT, owner: OWNER, scope: more, client });
    const { origin, pathname, search } = new URL(authorizationUrl);
    const back = await guard.agent.request({ origin, path: `${pathname}${search}`, method: "GET", signal });
    await back.body.dump();
    const { searchParams } = new URL(String(back.headers.location));
    const tokens = await connector.finish(
      {
        state: searchParams.get("state") ?? "",
        owner: OWNER,
        code: searchParams.get("code"),
        iss: searchParams.get("iss"),
        error: searchParams.get("error"),
      },
      async () => {},
    );
    held.token = tokens.accessToken;
    held.scope = tokens.scope;
  };

  const fetch: Fetch = async (at, init = {}) => {
    for (;;) {
      const headers = new Headers(init.headers);
      if (held.token !== null) headers.set("authorization", `Bearer ${held.token}`);
      const answer = await reach.fetch(at, { ...init, headers });
      if ((answer.status !== 401 && answer.status !== 403) || held.times >= AUTHORIZATIONS_MAX) return answer;
      held.times += 1;
      // What a request without a token is told is found out by the connector itself.
      await connect(answer.status === 403 ? challengeIn(answer).scope : null);
    }
  };

  const connection = await Connection.over(new StreamableHTTPClientTransport(url, { fetch }), { mode: "auto" }, HEARD, signal, RUN_MS);
  const ask = { signal, timeoutMs: RUN_MS };
  const { tools } = Listed.parse(await connection.request("tools/list", {}, ask));
  for (const { name, inputSchema } of tools) {
    const given = await connection.request("tools/call", { name, arguments: argumentsFor(inputSchema) }, ask);
    say(`${name}: ${JSON.stringify(given)}`);
  }
  await connection.close();
  await reach.close();
  await guard.close();
  await store.close();
}

/** Something for each argument that a tool must have. */
function argumentsFor(schema: unknown): Record<string, unknown> {
  const read = z
    .looseObject({ properties: z.record(z.string(), z.looseObject({ type: z.unknown() })).default({}), required: z.array(z.string()).default([]) })
    .safeParse(schema);
  if (!read.success) return {};
  return Object.fromEntries(read.data.required.map((name) => [name, SAMPLES[String(read.data.properties[name]?.type)] ?? "x"]));
}
