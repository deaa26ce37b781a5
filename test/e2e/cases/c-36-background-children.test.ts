// A command is over when its shell is: children that keep its output open hang nothing, and what was printed until then is given. A time-out or an
// interrupt ends the whole tree, detached and signal-ignoring children too.
//
// docker/docker-agent#2462, anomalyco/opencode#48414, earendil-works/pi#9460, moby/moby#33039

import { afterAll, beforeAll, expect, test } from "vitest";
import { proves } from "../../support/proves.ts";
import { needs } from "../../support/real-part.ts";
import { until } from "../../support/until.ts";
import { bash, ContainerStage } from "./containers.ts";
import { type CaseSession, stopsOf, TOOLSET } from "./stage.ts";

const RETURNED_MS = 2_000;
const STOPPED_MS = 5_000;
/** What a loaded machine may add. */
const GRACE_MS = 3_000;
const STUBBORN = `trap '' TERM INT HUP; while :; do sleep 1; done`;
const TREE = `(setsid bash -c "${STUBBORN}" &); (nohup bash -c "${STUBBORN}" >/dev/null 2>&1 &); ${STUBBORN}`;

needs("docker")("in a container", () => {
  let contained: ContainerStage;
  let session: CaseSession;
  beforeAll(async () => {
    contained = await ContainerStage.open();
    session = await contained.stage.session([TOOLSET]);
    await session.turn(`${bash("cd /tmp; A=kept")}\n---\nsay: warm`);
  });
  afterAll(() => contained.close());

  /** Runs a command; gives what it came to and how long its call took. */
  async function run(command: string, more: object = {}): Promise<{ readonly text: string; readonly isError: boolean; readonly ms: number }> {
    await session.turn(`${bash(command, more)}\n---\nsay: done`);
    const [use, result] = [(await session.eventsOf("agent.tool_use")).at(-1), (await session.eventsOf("agent.tool_result")).at(-1)];
    const { text = "", isError = false } = (await session.results()).at(-1) ?? {};
    return { text, isError, ms: Date.parse(String(result?.processed_at)) - Date.parse(String(use?.processed_at)) };
  }

  test.each([
    ["a sleeping child", "sleep 300 & echo done", /^done$/],
    ["one in a session of its own", "setsid sleep 300 & echo done", /^done$/],
    ["one that lost its parent", "(setsid nohup sleep 300 &) ; echo done", /^done$/],
    [
      "one that prints for ever",
      "echo before; (while :; do echo x; done) & sleep 0.1; echo done",
      /^before\n(x\n)*(.*left out here[\s\S]*)?(x\n)*done(\nx)*$/,
    ],
    ["one that keeps both outputs open", "python3 -c 'import time; time.sleep(300)' & echo out; echo err >&2", /^out\nerr$/],
  ])("%s: the command returns with what was printed, and the child is gone", async (_, command, says) => {
    const { text, isError, ms } = await run(command);
    expect(isError).toBe(false);
    expect(text).toMatch(says);
    expect(ms).toBeLessThan(RETURNED_MS + GRACE_MS);
    expect(await contained.processesOf(session)).toEqual([]);
  });

  proves("hand:ends", "a tree that ignores every signal it can ends at its limit of five seconds, and nothing of it is left", async () => {
    const { text, isError, ms } = await run(`echo started; ${TREE}`, { timeout_ms: 5_000 });
    expect(isError).toBe(true);
    expect(text).toMatch(/^Timed out after 5000 ms[\s\S]*started$/);
    expect(ms).toBeGreaterThanOrEqual(5_000);
    expect(ms).toBeLessThan(5_000 + GRACE_MS);
    expect(await contained.processesOf(session)).toEqual([]);
    expect((await run("pwd; echo $A")).text).toBe("/tmp\nkept");
  });

  proves("hand:ends", "an interrupt ends the same tree within seconds, and the shell goes on as it was", async () => {
    await session.say(`${bash(TREE)}\n---\nsay: never`);
    await until(async () => (await contained.processesOf(session)).length >= 5, { timeoutMs: 30_000, what: "the tree is up" });
    const asked = performance.now();
    await session.interrupt();
    const events = await session.settled();
    expect(performance.now() - asked).toBeLessThan(STOPPED_MS + GRACE_MS);
    expect(stopsOf(events).at(-1)).toBe("end_turn");
    expect(await contained.processesOf(session)).toEqual([]);
    expect((await run("pwd; echo $A")).text).toBe("/tmp\nkept");
    expect(await contained.containers()).toHaveLength(1);
  });
});
