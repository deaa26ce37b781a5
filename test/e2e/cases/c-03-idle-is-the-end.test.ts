// Idle means that the turn is over: it comes once, as the last event, after every result and the last words. The only idle between a call and its
// result is the one that asks the client to act, and it names exactly the calls that wait.
//
// superduck-ai/open-managed-agents#260, openma-ai/open-managed-agents#178

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { WireEvent } from "../../chaos/wire-checkers.ts";
import { asking, type CaseSession, LOOK_UP, Stage, stopsOf, TOOLSET } from "./stage.ts";

const SLOW = 'call bash: {"command":"sleep 2; echo slow"}';
const Stop = z.looseObject({ type: z.string(), event_ids: z.array(z.string()).optional() });

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

/** Reads the stream as a client does that stops at the first idle; `act` makes what it waits for. */
async function readToIdle(session: CaseSession, act: () => Promise<unknown>): Promise<readonly WireEvent[]> {
  const stream = await stage.client.beta.sessions.events.stream(session.id);
  await act();
  const seen: WireEvent[] = [];
  for await (const event of stream) {
    seen.push(WireEvent.parse(event));
    if (event.type === "session.status_idle") break;
  }
  return seen;
}

/** At each idle every call has its result, but for those that the idle names. */
function expectNamed(events: readonly WireEvent[]): void {
  const open = new Set<string>();
  for (const event of events) {
    if (event.type.endsWith("tool_use")) open.add(event.id);
    if (event.type.endsWith("tool_result")) open.delete(String(event.tool_use_id ?? event.custom_tool_use_id));
    if (event.type === "session.status_idle") expect([...open].sort()).toEqual([...(Stop.parse(event.stop_reason).event_ids ?? [])].sort());
  }
}

const isOver = (events: readonly WireEvent[]) => events.at(-1)?.type;

describe.concurrent("idle", () => {
  test("comes after slow tools, their results and the last words", async () => {
    const session = await stage.session([TOOLSET]);
    const seen = await readToIdle(session, () => session.say(`${SLOW}\ncall read: {"file_path":"none"}\n---\nsay: last words`));
    const events = await session.settled();
    expect(seen.map(({ id }) => id)).toEqual(events.map(({ id }) => id));
    expect(stopsOf(events)).toEqual(["end_turn"]);
    expect(isOver(events)).toBe("session.status_idle");
    expect(events.filter(({ type }) => type === "agent.tool_result")).toHaveLength(2);
    expect(await session.lastWords()).toBe("last words");
    expect(await session.status()).toBe("idle");
  });

  test("that asks for a client's tool comes after what runs here, and names that call alone", async () => {
    const session = await stage.session([TOOLSET, LOOK_UP]);
    const asked = await readToIdle(session, () => session.say(`call look_up: {}\n${SLOW}\n---\nsay: last words`));
    const use = asked.find(({ type }) => type === "agent.custom_tool_use")?.id ?? "";
    expect(Stop.parse(asked.at(-1)?.stop_reason)).toEqual({ type: "requires_action", event_ids: [use] });
    expect(asked.filter(({ type }) => type === "agent.tool_result")).toHaveLength(1);
    await readToIdle(session, () =>
      session.send({ type: "user.custom_tool_result", custom_tool_use_id: use, content: [{ type: "text", text: "found" }] }),
    );
    const events = await session.settled();
    expect(stopsOf(events)).toEqual(["requires_action", "end_turn"]);
    expect(isOver(events)).toBe("session.status_idle");
    expectNamed(events);
  });

  test("that asks for several names each of them, and the last one comes when all are answered", async () => {
    const session = await stage.session([asking("bash"), LOOK_UP]);
    const asked = await readToIdle(session, () =>
      session.say('call bash: {"command":"echo one"}\ncall look_up: {}\ncall bash: {"command":"echo two"}\n---\nsay: last words'),
    );
    const [first, second] = asked.filter(({ type }) => type === "agent.tool_use");
    const custom = asked.find(({ type }) => type === "agent.custom_tool_use");
    expect(Stop.parse(asked.at(-1)?.stop_reason).event_ids).toHaveLength(3);
    await session.send({ type: "user.tool_confirmation", tool_use_id: second?.id ?? "", result: "allow" });
    await session.has("agent.tool_result");
    await session.send({ type: "user.custom_tool_result", custom_tool_use_id: custom?.id ?? "", content: [{ type: "text", text: "found" }] });
    await session.send({ type: "user.tool_confirmation", tool_use_id: first?.id ?? "", result: "deny", deny_message: "no" });
    const events = await session.settled();
    expect(stopsOf(events).at(-1)).toBe("end_turn");
    expect(stopsOf(events).filter((stop) => stop === "end_turn")).toHaveLength(1);
    expect(isOver(events)).toBe("session.status_idle");
    expectNamed(events);
    expect(await session.lastWords()).toBe("last words");
  });

  test("comes once for each of three turns that were asked for at once, or fewer where they were taken together", async () => {
    const session = await stage.session([TOOLSET]);
    await Promise.all(["one", "two", "three"].map((words) => session.say(`call bash: {"command":"sleep 0.3; echo ${words}"}\n---\nsay: ${words}`)));
    const events = await session.settled();
    expect(isOver(events)).toBe("session.status_idle");
    const running = events.filter(({ type }) => type === "session.status_running").length;
    expect(stopsOf(events)).toEqual(Array.from({ length: running }, () => "end_turn"));
    expectNamed(events);
  });
});
