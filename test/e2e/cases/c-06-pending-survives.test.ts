// What waits for a client waits on the same ids after a crash, half answered or not; an answer counts once, a wrong id changes nothing, and an
// interrupt always frees the session.
//
// openclaw/openclaw#65486, letta-ai/letta#3176, letta-ai/lettabot#479 and #554

import Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { z } from "zod";
import { proves } from "../../support/proves.ts";
import { asking, type CaseSession, LOOK_UP, Stage, stopsOf, textOf } from "./stage.ts";

const SCRIPT = [
  'call bash: {"command":"echo first >> marks.txt; cat marks.txt"}',
  "call look_up: {}",
  'call bash: {"command":"echo second >> marks.txt; cat marks.txt"}',
  "---",
  "say: all answered",
].join("\n");
const Waiting = z.looseObject({ type: z.literal("requires_action"), event_ids: z.array(z.string()) });

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

interface Pending {
  readonly session: CaseSession;
  readonly first: string;
  readonly custom: string;
  readonly second: string;
}

/** A session that waits for two confirmations and a client's tool. */
async function pending(): Promise<Pending> {
  const session = await stage.session([asking("bash"), LOOK_UP]);
  await session.say(SCRIPT);
  const events = await session.settled();
  const [first, second] = events.filter(({ type }) => type === "agent.tool_use");
  const custom = events.find(({ type }) => type === "agent.custom_tool_use");
  if (!first || !second || !custom) throw new Error("not every call is there");
  expect([...waitingFor(events)].sort()).toEqual([first.id, second.id, custom.id].sort());
  return { session, first: first.id, custom: custom.id, second: second.id };
}

const waitingFor = (events: Awaited<ReturnType<CaseSession["events"]>>) =>
  Waiting.parse(events.findLast(({ type }) => type === "session.status_idle")?.stop_reason).event_ids;

const found = (id: string) => ({
  type: "user.custom_tool_result" as const,
  custom_tool_use_id: id,
  content: [{ type: "text" as const, text: "found" }],
});
const confirmed = (id: string, result: "allow" | "deny" = "allow") => ({ type: "user.tool_confirmation" as const, tool_use_id: id, result });

async function crash(): Promise<void> {
  await Promise.all([stage.installation.kill("node"), stage.installation.kill("hands")]);
  await stage.installation.startMissing();
}

const statusOf = (sent: Promise<unknown>): Promise<number> =>
  sent.then(
    () => 200,
    (error: unknown) => (error instanceof Anthropic.APIError ? (error.status ?? 0) : Promise.reject(error)),
  );

proves("wait:survives", "calls that wait are answered after crashes before, between and after the answers; each runs once", async () => {
  const { session, first, custom, second } = await pending();
  const before = await session.events();
  await crash();
  expect(await session.settled()).toEqual(before);

  await session.send(confirmed(second));
  await crash();
  await session.has("agent.tool_result");
  await session.send(found(custom));
  await crash();
  await session.send(confirmed(first));
  const events = await session.settled();
  expect(await session.lastWords()).toBe("all answered");
  expect(stopsOf(events).at(-1)).toBe("end_turn");
  const results = events.filter(({ type }) => type === "agent.tool_result");
  expect(results.map((event) => [event.tool_use_id, event.is_error])).toEqual([
    [second, false],
    [first, false],
  ]);
  expect(results.map((event) => textOf(event.content).split("\n").at(-1))).toEqual(["second", "first"]);
  expect(textOf(results[1]?.content)).toContain("second\nfirst");
  expect(session.requests().filter(({ rejected }) => rejected !== null)).toEqual([]);
  expect(session.requests()).toHaveLength(2);
});

test("a wrong id, and a second answer, are refused and change nothing, before a crash and after it", async () => {
  const [mine, other] = [await pending(), await pending()];
  const { session, first, custom } = mine;
  const message = (await session.events("user.message"))[0]?.id ?? "";
  const wrong = [
    confirmed("sevt_000000000000000000000000"),
    confirmed(message),
    confirmed(custom),
    confirmed(other.first),
    confirmed("toolu_0123456789abcdef01234567"),
    found(first),
    found(other.custom),
  ];
  for (const isAfter of [false, true]) {
    if (isAfter) await crash();
    const before = await session.events();
    for (const answer of wrong) expect([answer, await statusOf(session.send(answer))]).toEqual([answer, 400]);
    const blocked = session.send({ type: "user.message", content: [{ type: "text", text: "say: not now" }] });
    expect(await statusOf(blocked)).toBe(400);
    expect(await session.events()).toEqual(before);
  }
  await session.send(found(custom));
  expect(await statusOf(session.send(found(custom)))).toBe(400);
  await session.send(confirmed(first, "deny"));
  expect(await statusOf(session.send(confirmed(first)))).toBe(400);
});

test("an interrupt after a crash frees the session, half answered as it is", async () => {
  const { session, first, custom, second } = await pending();
  await session.send(found(custom));
  await crash();
  await session.interrupt();
  const events = await session.settled();
  const closing = events.filter(({ type }) => type === "agent.tool_result");
  expect(closing.map((event) => [event.tool_use_id, event.is_error])).toEqual([
    [first, true],
    [second, true],
  ]);
  expect(stopsOf(events).at(-1)).toBe("end_turn");
  await crash();
  expect(await session.turn("say: next")).toBe("next");
  const [, , sent] = z.array(z.looseObject({ content: z.unknown() })).parse(session.lastRequest().messages);
  expect(JSON.stringify(sent?.content)).toContain("found");
  expect(session.requests().filter(({ rejected }) => rejected !== null)).toEqual([]);
});
