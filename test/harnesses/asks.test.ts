// Calls of a session's door (asks.ts, asked.ts, steps.ts): who may, what follows in the log, and what a host does next.

import { describe, expect, test } from "vitest";
import { takenEntries } from "../../harnesses/asks.ts";
import { nextStep } from "../../harnesses/steps.ts";
import { LogView } from "../../harnesses/view.ts";
import { effectsOf } from "../../session-store/effects.ts";
import type { Entry } from "../../session-store/entry.ts";
import type { AskedBy, LogAsked } from "../../session-store/events/log.ts";
import type { Fence } from "../../session-store/ids.ts";
import { mintEvent, position } from "../../session-store/ids.ts";
import { agent, LOOK_UP, toolset } from "./agents.ts";

const FENCE = 3 as Fence;
const WORKSPACE: AskedBy = { type: "workspace", isConfirmed: false };
const asked = (name: string, by: AskedBy = WORKSPACE): LogAsked => ({ type: "log.asked", id: mintEvent(), name, input: { command: "ls" }, by });

function viewOf(...entries: Entry[]): LogView {
  const view = new LogView();
  const created: Entry = {
    type: "log.created",
    workspace: "default",
    agent: agent([toolset({ write: "always_ask", edit: "off", glob: "auto" }), LOOK_UP]),
    environment_id: "env_1",
    title: null,
    metadata: {},
    resources: [],
    vault_ids: [],
  };
  view.fold([created, ...entries].map((entry, index) => ({ entry, position: position(index + 1), at: 0, fence: FENCE })));
  return view;
}
const taken = (name: string, by?: AskedBy, hasRoom = true) => {
  const ask = asked(name, by);
  return takenEntries(viewOf(ask), FENCE, ask, hasRoom);
};
const refused = (why: string) => [{ type: "log.taken", id: expect.any(String), refused: expect.stringContaining(why) }];

describe("a call that was asked for", () => {
  test("is taken up with its tool use in one append, under one id", () => {
    const ask = asked("bash");
    expect(takenEntries(viewOf(ask), FENCE, ask, true)).toEqual([
      { type: "log.taken", id: ask.id, refused: null },
      {
        type: "agent.tool_use",
        id: ask.id,
        name: "bash",
        input: { command: "ls" },
        evaluated_permission: "allow",
        evaluation: { type: "always_allow" },
      },
    ]);
  });

  test("is refused in words where it may not run, and no tool use is written", () => {
    for (const name of ["edit", "look_up", "web_fetch", "nothing"]) expect(taken(name)).toEqual(refused("no tool"));
    for (const name of ["write", "glob"]) expect(taken(name)).toEqual(refused("asks a person first"));
    expect(taken("bash", WORKSPACE, false)).toEqual(refused("Too many calls"));
  });

  test("runs after a person's word, which only a key of the workspace can bring", () => {
    expect(taken("write", { type: "workspace", isConfirmed: true })).toMatchObject([{ refused: null }, { evaluated_permission: "allow" }]);
    expect(taken("write", { type: "turn", fence: FENCE })).toEqual(refused("asks a person first"));
  });

  test("by a key of another turn is refused by the host, whatever its door knew", () => {
    expect(taken("bash", { type: "turn", fence: FENCE })).toHaveLength(2);
    expect(taken("bash", { type: "turn", fence: 2 as Fence })).toEqual(refused("earlier turn"));
    const [running, ask] = [{ id: mintEvent(), type: "session.status_running" } as const, asked("bash", { type: "client", at: position(1) })];
    expect(takenEntries(viewOf(ask), FENCE, ask, true)).toHaveLength(2);
    expect(takenEntries(viewOf(running, ask), FENCE, ask, true)).toEqual(refused("earlier turn"));
  });

  test("and called off before it began is not run", () => {
    const ask = asked("bash");
    expect(takenEntries(viewOf(ask, { type: "log.called_off", id: mintEvent(), call: ask.id }), FENCE, ask, true)).toEqual(refused("called off"));
  });
});

describe("the next step of a log", () => {
  const ask = asked("bash");
  const use = takenEntries(viewOf(ask), FENCE, ask, true);
  const result: Entry = { id: mintEvent(), type: "agent.tool_result", tool_use_id: ask.id, content: [], is_error: false };
  const said: Entry[] = [
    { type: "log.received", event: { id: mintEvent(), type: "user.message", content: [{ type: "text", text: "hi" }] }, waits: true },
  ];

  test("takes up what was asked for, waits for its end, and leaves nothing to answer", () => {
    expect(nextStep(viewOf(), 0)).toEqual({ type: "nothing" });
    expect(nextStep(viewOf(ask), 0)).toEqual({ type: "calls" });
    expect(nextStep(viewOf(ask, ...use), 0)).toEqual({ type: "asked" });
    const after = viewOf(ask, ...use, result);
    expect(nextStep(after, 0)).toEqual({ type: "nothing" });
    expect([after.hasQuestion, after.asked.waiting, after.openCalls]).toEqual([false, [], []]);
  });

  test("begins a turn beside an open call of the door", () => {
    expect(nextStep(viewOf(ask, ...use, ...said), 0)).toEqual({ type: "run" });
  });

  test("gives up what kills every worker that takes it up", () => {
    expect(nextStep(viewOf(ask, ...use), 5)).toEqual({ type: "give_up" });
    expect(nextStep(viewOf(ask), 5)).toEqual({ type: "give_up" });
  });

  test("counts as waiting until it is taken up, and wakes", () => {
    expect(effectsOf(ask)).toMatchObject({ waiting: 1, wakes: true, isGate: false, open: 0 });
    expect(use.map((entry) => effectsOf(entry)).map(({ waiting, open }) => [waiting, open])).toEqual([
      [-1, 0],
      [0, 1],
    ]);
    expect(effectsOf({ type: "log.called_off", id: mintEvent(), call: ask.id })).toMatchObject({ waiting: 0, wakes: false });
  });
});
