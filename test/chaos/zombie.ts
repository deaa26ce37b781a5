// The zombie: a worker is frozen in a turn for longer than its lease, another one takes over, the frozen one wakes up and goes on where it was.
//
//   Z1  Where it is frozen is drawn: at a point of the turn, or at any moment of it.
//   Z2  When it is thawed is drawn too: any time after the other one took over, so that the two meet.
//   Z3  A pause without a takeover (the turn was over before) does not count, and is done again.

import { setTimeout as sleep } from "node:timers/promises";
import type { Stored } from "../../session-store/entry.ts";
import type { FaultPointName } from "../../session-store/fault-point.ts";
import { parseSessionId, position, type SessionId } from "../../session-store/ids.ts";
import type { SessionStore } from "../../session-store/store.ts";
import type { Program } from "../support/process.ts";
import { until } from "../support/until.ts";
import type { Api } from "./api.ts";
import { disorderOf, doubledOf, type Faults } from "./checkers.ts";
import type { HandRelay } from "./hand-relay.ts";
import { overtakenOf, staleAsksOf } from "./hand-relay.ts";
import { type Installation, isUp } from "./installation.ts";
import { ask, endOf, TOOLS } from "./kill.ts";
import type { Chance } from "./seed.ts";

const POINTS = [
  "taken",
  "model-streaming",
  "reply-stored",
  "tool-running",
  "result-stored",
  "before-finish",
] as const satisfies readonly FaultPointName[];
const MOMENT_MS_MAX = 700;
const MEET_MS_MAX = 600;
const TAKEOVER_MS = 20_000;
const NOTICE_MS = 2_000;
const NOTICE_POLL_MS = 20;
/** Pauses that are tried for one that counts. Z3 */
const TRIES = 5;

export interface Stage {
  readonly installation: Installation;
  readonly api: Api;
  /** A store of the test's own, on the same Redis: what a fresh reader sees. */
  readonly store: SessionStore;
  readonly relay: HandRelay;
  readonly chance: Chance;
}

export interface ZombieRow {
  readonly pauses: number;
  /** Requests to the hand host that came under an overtaken fence; taken ones are faults. */
  readonly staleCallsAsked: number;
  readonly staleCallsTaken: number;
  /** Entries that stand under an older fence than one before them. */
  readonly staleEntries: number;
  readonly faults: Faults;
}

/** Freezes and thaws so many times; gives what came of it. */
export async function freezeAgain(stage: Stage, pauses: number): Promise<ZombieRow> {
  const faults: string[] = [];
  let staleEntries = 0;
  for (let pause = 1; pause <= pauses; pause += 1) {
    const { name, stale, other } = await pauseThatCounts(stage).catch(asFault);
    staleEntries += stale.length;
    const first = [...stale, ...other][0];
    if (first !== undefined) faults.push(`pause ${pause}, ${name}: ${first}`);
  }
  const taken = staleAsksOf(stage.relay.asks);
  return {
    pauses,
    staleCallsAsked: overtakenOf(stage.relay.asks).length,
    staleCallsTaken: taken.length,
    staleEntries,
    faults: [...faults, ...taken.slice(0, 1)],
  };
}

/** What did not come to its end is a fault like any other. */
const asFault = (error: unknown): Pause => ({ name: "not judged", stale: [], other: [String(error)] });

interface Pause {
  readonly name: string;
  readonly stale: Faults;
  readonly other: Faults;
}

async function pauseThatCounts(stage: Stage): Promise<Pause> {
  for (let tries = 0; tries < TRIES; tries += 1) {
    const done = await pauseOnce(stage);
    if (done) return done;
  }
  throw new Error(`no takeover in ${TRIES} pauses`);
}

async function pauseOnce({ installation, api, store, chance }: Stage): Promise<Pause | null> {
  const point = chance.next() < 0.7 ? chance.pick(POINTS) : null;
  const session = await api.openSession(TOOLS);
  const id = sessionIdOf(session.id);
  const other = installation.program("worker");
  const zombie = installation.startBeside("worker", point === null ? {} : { MANYHANDS_FAULT_POINT: point });
  try {
    await isUp(zombie);
    other.kill("SIGSTOP");
    const asked = await ask(session);
    if (point === null) {
      await until(async () => (await store.getSession(id)).isHeld, { what: "the zombie to take the session" });
      await sleep(chance.between(0, MOMENT_MS_MAX));
    } else await zombie.logged("fault.reached", { fields: { point } });
    zombie.kill("SIGSTOP");
    const { fence, isHeld } = await store.getSession(id);
    other.kill("SIGCONT");
    if (!isHeld) return null;
    await until(async () => (await store.getSession(id)).fence > fence, { timeoutMs: TAKEOVER_MS, what: "another worker to take over" });
    await sleep(chance.between(0, MEET_MS_MAX));
    if (point !== null) zombie.kill("SIGUSR2");
    zombie.kill("SIGCONT");
    await noticed(zombie);
    const seen = await endOf(installation, session, [asked]);
    const log = await wholeLog(store, id);
    const disorder = disorderOf(log);
    return {
      name: `frozen ${point === null ? "at some moment" : `at ${point}`}`,
      stale: disorder.filter(isAboutFences),
      other: [...disorder.filter((fault) => !isAboutFences(fault)), ...doubledOf(log), ...seen],
    };
  } finally {
    other.kill("SIGCONT");
    await zombie[Symbol.asyncDispose]();
  }
}

/** Gives a thawed worker the time to find out; whether it does is not what is judged here. */
async function noticed(zombie: Program): Promise<void> {
  const deadline = Date.now() + NOTICE_MS;
  const hasNoticed = () => zombie.lines.some(({ msg }) => msg === "lease.lost" || msg === "session.failed");
  while (!hasNoticed() && Date.now() < deadline) await sleep(NOTICE_POLL_MS);
}

const isAboutFences = (fault: string): boolean => fault.startsWith("fence");

async function wholeLog(store: SessionStore, id: SessionId): Promise<readonly Stored[]> {
  const log: Stored[] = [];
  for (;;) {
    const page = await store.getEvents(id, { after: position(log.at(-1)?.position ?? 0) });
    if (page.length === 0) return log;
    log.push(...page);
  }
}

function sessionIdOf(text: string): SessionId {
  const id = parseSessionId(text);
  if (id === null) throw new Error(`${text} is no session id`);
  return id;
}
