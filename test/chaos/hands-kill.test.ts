// Calls at the door of a session's hands while programs die: on Redis, with two gateways, a worker of its own and a hand host.

import { afterEach, beforeEach, expect, test } from "vitest";
import { z } from "zod";
import { META } from "../../hands/hand.ts";
import type { FaultPointName } from "../../session-store/fault-point.ts";
import { mint } from "../../session-store/ids.ts";
import type { Program } from "../support/process.ts";
import { proves } from "../support/proves.ts";
import { connectHands } from "../support/session-door.ts";
import { until } from "../support/until.ts";
import type { ChaosSession } from "./api.ts";
import { isUp } from "./installation.ts";
import { effectsBelow, TOOLS } from "./kill.ts";
import { freePort } from "./redis-server.ts";
import { useInstallation } from "./use-installation.ts";

const KILL_MS = 180_000;

const inUse = useInstallation("redis");
let other: { readonly program: Program; readonly url: string };

beforeEach(async () => {
  const port = await freePort();
  const program = inUse().installation.startBeside("gateway", { MANYHANDS_PORT: String(port) });
  await isUp(program);
  other = { program, url: `http://127.0.0.1:${port}` };
});
afterEach(async () => {
  await other.program[Symbol.asyncDispose]();
  await inUse().installation.startMissing();
});

const HandsKey = z.object({ key: z.string(), url: z.string() });

/** A client's key, asked for at the first gateway, used at the second. */
async function connectAtOther(session: ChaosSession) {
  const given = HandsKey.parse(await inUse().api.insist("POST", `/v1/sessions/${session.id}/hands_key`));
  return connectHands("v1", given.url.replace(inUse().installation.url, other.url), given.key);
}

/** A worker that holds at a point; the one before it is gone. */
async function arm(point: FaultPointName): Promise<void> {
  const { installation } = inUse();
  await installation.stop("worker");
  await installation.start("worker", point);
}

const commandOf = (nonce: string) => `echo ${nonce} >> effects.txt; sleep 0.4; echo written`;
const effectsOf = async (nonce: string) => (await effectsBelow(inUse().installation.dataDir)).filter((line) => line === nonce).length;

async function callsIn(session: ChaosSession) {
  const events = await session.settled();
  return events.filter(({ type }) => /tool_(use|result)$/.test(type)).map(({ type }) => type);
}
const ONE_CALL = ["agent.tool_use", "agent.tool_result"];

for (const point of ["taken", "tool-running"] as const)
  proves(
    "hand:asked-once",
    `a worker that is killed at ${point}: the call ran once, and its caller has its true result`,
    async () => {
      const { installation, api } = inUse();
      const session = await api.openSession(TOOLS);
      const { call, close } = await connectAtOther(session);
      await arm(point);
      const nonce = mint("call");
      const calling = call("bash", { command: commandOf(nonce) });
      await installation.reached("worker", point);
      await installation.kill("worker");
      await installation.start("worker");
      expect(await calling).toMatchObject({ text: "written", isError: false });
      expect(await effectsOf(nonce)).toBe(1);
      expect(await callsIn(session)).toEqual(ONE_CALL);
      await close();
    },
    KILL_MS,
  );

test(
  "a hand host that is killed after the tool did its work: the caller and the log are told that it may have run, and it does not run again",
  async () => {
    const { installation, api } = inUse();
    const session = await api.openSession(TOOLS);
    const { call, close } = await connectAtOther(session);
    const nonce = mint("call");
    const calling = call("bash", { command: `echo ${nonce} >> effects.txt; sleep 20` });
    await until(async () => (await effectsOf(nonce)) === 1, { what: "the tool's effect" });
    await installation.kill("hands");
    await installation.start("hands");
    expect(await calling).toMatchObject({ text: expect.stringContaining("may have run"), isError: true });
    expect(await effectsOf(nonce)).toBe(1);
    expect(await callsIn(session)).toEqual(ONE_CALL);
    await close();
  },
  KILL_MS,
);

test(
  "a gateway that is killed in mid-call: the same call, sent again at another one, is answered with what it came to",
  async () => {
    const { installation, api } = inUse();
    const session = await api.openSession(TOOLS);
    const { call, close } = await connectAtOther(session);
    const nonce = mint("call");
    const meta = { [META.toolUseId]: nonce };
    // Whether this client hears of the break, or goes on trying to resume: its answer is not here.
    call("bash", { command: commandOf(nonce) }, { meta }).catch(() => {});
    await until(async () => (await effectsOf(nonce)) === 1, { what: "the tool's effect" });
    other.program.kill("SIGKILL");
    await other.program.exit();
    const given = HandsKey.parse(await api.insist("POST", `/v1/sessions/${session.id}/hands_key`));
    expect(given.url.startsWith(installation.url)).toBe(true);
    const again = await connectHands("v2", given.url, given.key);
    expect(await again.call("bash", { command: commandOf(nonce) }, { meta })).toMatchObject({ text: "written", isError: false });
    expect(await effectsOf(nonce)).toBe(1);
    expect(await callsIn(session)).toEqual(ONE_CALL);
    await Promise.all([close(), again.close()].map((closing) => closing.catch(() => {})));
  },
  KILL_MS,
);
