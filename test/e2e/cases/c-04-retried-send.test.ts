// A send that is sent again is one message and one turn: under an idempotency key, at the same time, long after, after a crash, and by the SDK's own
// retry when the answer never got out. The same key with another body is refused. Creates likewise.
//
// anthropics/anthropic-sdk-java#370, strands-agents/harness-sdk#1365

import { randomUUID } from "node:crypto";
import Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { proves } from "../../support/proves.ts";
import { startTcpProxy, type TcpProxy } from "../../support/tcp-proxy.ts";
import { type CaseSession, Stage, stopsOf } from "./stage.ts";

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

const messageOf = (session: CaseSession, words = "said") => ({
  events: [{ type: "user.message" as const, content: [{ type: "text" as const, text: `say: ${words}\n(${session.nonce})` }] }],
});
const underKey = (idempotencyKey: string) => ({ headers: { "idempotency-key": idempotencyKey } });
const idsOf = ({ data }: { data?: readonly { readonly id: string }[] | null }) => (data ?? []).map(({ id }) => id);

/** One message, one turn, one model request. */
async function expectOnce(session: CaseSession): Promise<void> {
  const events = await session.settled();
  expect(events.filter(({ type }) => type === "user.message")).toHaveLength(1);
  expect(events.filter(({ type }) => type === "agent.message")).toHaveLength(1);
  expect(stopsOf(events)).toEqual(["end_turn"]);
  expect(session.requests()).toHaveLength(1);
}

const statusOf = (sent: Promise<unknown>): Promise<number> =>
  sent.then(
    () => 200,
    (error: unknown) => (error instanceof Anthropic.APIError ? (error.status ?? 0) : Promise.reject(error)),
  );

describe.concurrent("a send under a key", () => {
  test("again is answered with the first one's events, also after its turn", async () => {
    const session = await stage.session();
    const events = stage.client.beta.sessions.events;
    const key = randomUUID();
    const first = await events.send(session.id, messageOf(session), underKey(key));
    await session.settled();
    expect(await events.send(session.id, messageOf(session), underKey(key))).toEqual(first);
    await expectOnce(session);
  });

  test("twenty times at once is one message", async () => {
    const session = await stage.session();
    const events = stage.client.beta.sessions.events;
    const key = randomUUID();
    const answers = await Promise.all(Array.from({ length: 20 }, () => events.send(session.id, messageOf(session), underKey(key))));
    expect(new Set(answers.map((answer) => idsOf(answer).join())).size).toBe(1);
    await expectOnce(session);
  });

  test("with another body is refused, and stores nothing", async () => {
    const session = await stage.session();
    const events = stage.client.beta.sessions.events;
    const key = randomUUID();
    await events.send(session.id, messageOf(session), underKey(key));
    expect(await statusOf(events.send(session.id, messageOf(session, "something else"), underKey(key)))).toBe(409);
    await expectOnce(session);
    expect(await session.lastWords()).toBe("said");
  });

  test("is another message in another session, and under another key", async () => {
    const [one, other] = [await stage.session(), await stage.session()];
    const events = stage.client.beta.sessions.events;
    const key = randomUUID();
    const answers = [
      await events.send(one.id, messageOf(one), underKey(key)),
      await events.send(other.id, messageOf(one), underKey(key)),
      await events.send(one.id, messageOf(one), underKey(randomUUID())),
    ];
    expect(new Set(answers.flatMap(idsOf)).size).toBe(3);
    await Promise.all([one.settled(), other.settled()]);
    expect((await one.events("user.message")).length).toBe(2);
  });
});

proves("send:once", "a send under a key whose gateway was killed before it answered is one message", async () => {
  const session = await stage.session();
  const { installation, client } = stage;
  const key = randomUUID();
  await installation.stop("node");
  await installation.start("node", "stored");
  const first = statusOf(client.beta.sessions.events.send(session.id, messageOf(session), underKey(key)));
  await installation.reached("node", "stored");
  await installation.kill("node");
  expect(await first).toBe(0);
  await installation.start("node");
  const again = await client.beta.sessions.events.send(session.id, messageOf(session), underKey(key));
  await expectOnce(session);
  expect((await session.events("user.message")).map(({ id }) => id)).toEqual(idsOf(again));
});

test("the SDK's own retry of a send whose answer never got out is that send; the same words again are another one", async () => {
  const session = await stage.session();
  const { installation } = stage;
  await installation.stop("node");
  await installation.start("node", "stored");
  await throughProxy(async (proxy, client) => {
    const sent = client.beta.sessions.events.send(session.id, messageOf(session));
    await installation.reached("node", "stored");
    proxy.cutAll();
    const ids = idsOf(await sent);
    installation.release("node");
    await expectOnce(session);
    expect((await session.events("user.message")).map(({ id }) => id)).toEqual(ids);
    await client.beta.sessions.events.send(session.id, messageOf(session));
    await session.settled();
    expect(await session.events("user.message")).toHaveLength(2);
  });
});

// Without a key nobody can tell an answer that was lost behind the door from one that arrived.
test("the SDK's own retries under a key are one message and one session, also where the answers were lost on their way", async () => {
  const session = await stage.session();
  const { agent, environment } = await parts();
  await throughProxy(async (proxy, client) => {
    let cuts = 0;
    proxy.cutAnswers(() => ++cuts <= 2);
    const answer = await client.beta.sessions.events.send(session.id, messageOf(session), underKey(randomUUID()));
    expect(proxy.cuts).toBe(2);
    await expectOnce(session);
    expect((await session.events("user.message")).map(({ id }) => id)).toEqual(idsOf(answer));
    cuts = 0;
    const made = await client.beta.sessions.create({ agent, environment_id: environment }, underKey(randomUUID()));
    expect(proxy.cuts).toBe(4);
    expect(await sessionsOf(agent)).toEqual([made.id]);
  });
});

async function throughProxy(use: (proxy: TcpProxy, client: Anthropic) => Promise<void>): Promise<void> {
  const proxy = await startTcpProxy(Number(new URL(stage.installation.url).port));
  try {
    await use(proxy, stage.clientOf(`http://127.0.0.1:${proxy.port}`, 2));
  } finally {
    await proxy.close();
  }
}

describe.concurrent("a create under a key", () => {
  test("twice, and at once, is one session", async () => {
    const { agent, environment } = await parts();
    const { sessions } = stage.client.beta;
    const key = randomUUID();
    const body = { agent, environment_id: environment, title: "once" };
    const made = await Promise.all([1, 2, 3].map(() => sessions.create(body, underKey(key))));
    made.push(await sessions.create(body, underKey(key)));
    expect(new Set(made.map(({ id }) => id)).size).toBe(1);
    expect(await sessionsOf(agent)).toEqual([made[0]?.id]);
    expect(await statusOf(sessions.create({ ...body, title: "another" }, underKey(key)))).toBe(409);
    expect(await sessionsOf(agent)).toHaveLength(1);
  });

  test("twice is one agent and one environment", async () => {
    const { agents, environments } = stage.client.beta;
    const name = `once-${randomUUID()}`;
    const made = await Promise.all([1, 2].map(() => agents.create({ name, model: "scripted-model" }, underKey(name))));
    const rooms = await Promise.all([1, 2].map(() => environments.create({ name }, underKey(name))));
    expect(new Set([...made, ...rooms].map(({ id }) => id)).size).toBe(2);
  });
});

async function parts(): Promise<{ readonly agent: string; readonly environment: string }> {
  const { agents, environments } = stage.client.beta;
  const agent = await agents.create({ name: "Once", model: "scripted-model" });
  return { agent: agent.id, environment: (await environments.create({ name: randomUUID() })).id };
}

async function sessionsOf(agent: string): Promise<readonly string[]> {
  const found: string[] = [];
  for await (const session of stage.client.beta.sessions.list({ agent_id: agent })) found.push(session.id);
  return found;
}
