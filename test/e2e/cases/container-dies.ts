// A container dies at a point of a turn, alone or together with the brain that drives it. Whatever the moment: each call has one result right after it, the
// model refuses nothing, the effect happened at most once and the model knows what came of it, and the next call works on the same files.

import type { FaultPointName } from "../../../session-store/fault-point.ts";
import type { Faults } from "../../chaos/checkers.ts";
import { effectsBelow } from "../../chaos/kill.ts";
import type { Chance } from "../../chaos/seed.ts";
import { danglingSpansOf, disorderedEventsOf, unpairedCallsOf } from "../../chaos/wire-checkers.ts";
import { engine } from "../../support/docker.ts";
import { until } from "../../support/until.ts";
import { bash, type ContainerStage } from "./containers.ts";
import { type CaseSession, resultsIn, stopsOf, TOOLSET, textOf } from "./stage.ts";

const DEATHS = ["killed", "paused", "removed"] as const;
type Death = (typeof DEATHS)[number];

/** `idle`: before the turn; the others are where a brain is held. */
const POINTS = ["idle", "model-streaming", "reply-stored", "tool-running", "result-stored", "before-finish"] as const satisfies readonly (
  | FaultPointName
  | "idle"
)[];

export interface ContainerDeath {
  readonly point: (typeof POINTS)[number];
  readonly death: Death;
  /** The brain is killed as well. */
  readonly withBrain: boolean;
}

/** Each point with each death, with the brain and without it. */
export const ALL_DEATHS: readonly ContainerDeath[] = POINTS.flatMap((point) =>
  DEATHS.flatMap((death) => [false, true].map((withBrain) => ({ point, death, withBrain }))),
);

/** Each point once and each death as often as the next; which goes with which is drawn. */
export function drawnDeaths(chance: Chance): readonly ContainerDeath[] {
  const first = chance.between(0, DEATHS.length - 1);
  return POINTS.map((point, at) => ({ point, death: DEATHS[(first + at) % DEATHS.length] ?? "killed", withBrain: chance.next() < 0.5 }));
}

/** One death in words. */
export const nameOfDeath = ({ point, death, withBrain }: ContainerDeath): string => `${death} at ${point}${withBrain ? ", with the brain" : ""}`;

const LOST = /^The tool failed: the sandbox was lost while the tool ran: its container was (ended \(exit code \d+\)|removed|paused)$/;
const COUNTED = /^(shell restarted; files kept\n)?counted 1$/;

/** Gives what is wrong afterwards. */
export async function runDeath(contained: ContainerStage, { point, death, withBrain }: ContainerDeath): Promise<Faults> {
  const { stage } = contained;
  const { installation } = stage;
  const session = await stage.session([TOOLSET]);
  await session.turn(`${bash("true")}\n---\nsay: warm`);
  if (point === "idle") await strike(contained, session, death);
  else {
    await installation.kill("node");
    await installation.start("node", point);
  }
  const rest = point === "tool-running" ? "sleep 60" : "sleep 0.2";
  const count = `echo ${session.nonce} >> effects.txt; ${rest}; echo counted $(grep -c . effects.txt)`;
  await session.say(`token_delay: 5\nsay: two calls, side by side\n${bash(count)}\n${bash("echo two")}\n---\nsay: done`);
  if (point !== "idle") await installation.reached("node", point);
  const effects = async () => (await effectsBelow(installation.dataDir)).filter((line) => line === session.nonce).length;
  if (point === "tool-running") await until(async () => (await effects()) === 1, { timeoutMs: 30_000, what: "the effect" });
  if (point !== "idle") await strike(contained, session, death);
  if (withBrain) {
    await installation.kill("node");
    await installation.startMissing();
  } else if (point !== "idle") installation.release("node");
  await session.say("say: continued");
  const events = await session.settled(90_000);

  const told = resultsIn(session.lastRequest()).map(({ content }) => textOf(content));
  const first = told.find((text) => text !== "two" && text !== "(no output)" && !text.endsWith("\ntwo")) ?? "nothing";
  const times = await effects();
  const faults = [...unpairedCallsOf(events), ...danglingSpansOf(events), ...disorderedEventsOf(events)];
  if ((await session.lastWords()) !== "continued") faults.push(`the last words are ${await session.lastWords()}`);
  if (stopsOf(events).at(-1) !== "end_turn") faults.push(`it stopped for ${stopsOf(events).at(-1)}`);
  for (const { rejected } of session.requests()) if (rejected !== null) faults.push(`the model refused: ${rejected}`);
  if (point === "tool-running" && !LOST.test(first)) faults.push(`the call that ran is said to have come to: ${first}`);
  // A paused container is found out by the call that needs it; a dead one before that.
  if (point !== "tool-running" && !COUNTED.test(first) && !(death === "paused" && LOST.test(first))) faults.push(`the call came to: ${first}`);
  if (times !== 1 && !(death === "paused" && times === 0 && LOST.test(first))) faults.push(`the effect happened ${times} times`);
  const isSecondTold = told.some((text) => text === "two" || text.endsWith("\ntwo"));
  if (!isSecondTold && !(death === "paused" && told.some((text) => LOST.test(text))))
    faults.push(`the second call came to none of: ${told.join(" | ")}`);
  faults.push(...(await faultsOfNext(contained, session, times)));
  return faults;
}

async function faultsOfNext(contained: ContainerStage, session: CaseSession, effects: number): Promise<Faults> {
  const script = `${bash("cat effects.txt 2>/dev/null | wc -l")}\necho: `;
  let said = await session.turn(script);
  // Nothing needed the container since it was paused.
  if (/its container was paused/.test(said)) said = await session.turn(script);
  const state = (await contained.containers()).filter((each) => each.session === session.id).map((each) => each.state);
  return [
    ...(said.split("\n").at(-1) === String(effects) ? [] : [`the next call came to: ${said}`]),
    ...(state.join() === "running" ? [] : [`its containers: ${state.join() || "none"}`]),
  ];
}

async function strike(contained: ContainerStage, session: CaseSession, death: Death): Promise<void> {
  const container = engine.getContainer((await contained.containerOf(session)).id);
  if (death === "killed") await container.kill();
  else if (death === "paused") await container.pause();
  else await container.remove({ force: true });
}
