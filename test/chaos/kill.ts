// The kill: a turn is held at a named point, programs are killed there and started again, and the turn must come to its end as if nothing had been.

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { FaultPointName } from "../../session-store/fault-point.ts";
import { mint } from "../../session-store/ids.ts";
import { until } from "../support/until.ts";
import { type Api, type ChaosSession, scriptOf } from "./api.ts";
import type { Faults } from "./checkers.ts";
import { holderOf, type Installation, type Role, rolesOf, type StoreKind } from "./installation.ts";
import type { Chance } from "./seed.ts";
import {
  type AskedTurn,
  danglingSpansOf,
  disorderedEventsOf,
  lostEventsOf,
  repeatedEffectsOf,
  toldOf,
  unfinishedTurnsOf,
  unpairedCallsOf,
} from "./wire-checkers.ts";

type Victim = Role | "everything";

/** One kill: who dies where. `again`: the one that takes over dies as well, while it recovers. */
export interface Kill {
  readonly point: FaultPointName;
  readonly victim: Victim;
  readonly again: boolean;
}

const POINTS: readonly FaultPointName[] = ["stored", "taken", "model-streaming", "reply-stored", "tool-running", "result-stored", "before-finish"];
const REACHED_MS = 30_000;

const victimsOf = (store: StoreKind): readonly Victim[] =>
  store === "embedded" ? ["node", "hands", "vault-proxy", "everything"] : ["gateway", "worker", "hands", "vault-proxy", "redis", "everything"];

/**
 * With `isWhole`, each point with each victim once, and again where the one that recovers dies too. Without it a drawn third of the first, every point and every
 * victim among them, and one of the others.
 */
export function killsOf(store: StoreKind, isWhole: boolean, chance: Chance): readonly Kill[] {
  const victims = victimsOf(store);
  const once = POINTS.flatMap((point) => victims.map((victim) => ({ point, victim, again: false })));
  const again = once.filter(({ point, victim }) => point !== "stored" && diesHeld(store, point, victim)).map((kill) => ({ ...kill, again: true }));
  const drawn = again[chance.between(0, again.length - 1)];
  if (isWhole || !drawn) return [...once, ...again];
  const shift = chance.between(0, 2);
  const third = once.filter((_, at) => (Math.floor(at / victims.length) + (at % victims.length) + shift) % 3 === 0);
  return [...third, drawn];
}

const diesHeld = (store: StoreKind, point: FaultPointName, victim: Victim): boolean => victim === "everything" || victim === holderOf(store, point);

export const nameOf = ({ point, victim, again }: Kill): string => `${victim} killed at ${point}${again ? ", and again while it recovers" : ""}`;

export const TOOLS = [{ type: "agent_toolset_20260401" }];

export interface Killed {
  /** What is wrong afterwards. */
  readonly faults: Faults;
  /** What the turn's tool was said to have come to. */
  readonly told: string;
  /** How often it did its work. */
  readonly effects: number;
}

/** Runs one kill against a running installation. */
export async function runKill(installation: Installation, api: Api, kill: Kill): Promise<Killed> {
  const { store } = installation;
  const holder = holderOf(store, kill.point);
  await installation.startMissing();
  const session = await api.openSession(TOOLS);

  await installation.stop(holder);
  await installation.start(holder, kill.point);
  const nonce = mint("turn");
  const asked = session.askFor(nonce, scriptOf(nonce));
  // A rejection is met below, when it is awaited.
  asked.catch(() => {});
  await installation.reached(holder, kill.point);

  // A hand host dies when the tool did its work and did not answer yet; with everything else it dies when the call has just been sent.
  if (kill.point === "tool-running" && kill.victim === "hands") await happened(installation.dataDir, nonce);
  const victims = kill.victim === "everything" ? rolesOf(store) : [kill.victim];
  await Promise.all(victims.map((role) => installation.kill(role)));
  if (!victims.includes(holder)) installation.release(holder);
  if (kill.again) {
    for (const role of victims) if (role !== holder) await installation.start(role);
    await installation.start(holder, "recovering");
    await until(async () => installation.hasReached(holder, "recovering") || (await isOver(session)), {
      timeoutMs: REACHED_MS,
      what: "a recovery, or an end without one",
    });
    await installation.kill(holder);
  }
  await installation.startMissing();
  const faults = await endOf(installation, session, [await asked]);
  const effects = (await effectsBelow(installation.dataDir)).filter((line) => line === nonce).length;
  return { faults, told: toldOf(nonce, await session.events()), effects };
}

/** Asks for a turn with a nonce of its own. */
export function ask(session: ChaosSession): Promise<AskedTurn> {
  const nonce = mint("turn");
  return session.askFor(nonce, scriptOf(nonce));
}

/** Waits for the end, asks for one more turn, and judges all. */
export async function endOf(installation: Installation, session: ChaosSession, turns: readonly AskedTurn[]): Promise<Faults> {
  await session.settled();
  const all = [...turns, await ask(session)];
  const events = await session.settled();
  const effects = await effectsBelow(installation.dataDir);
  return [
    ...lostEventsOf(all, events),
    ...disorderedEventsOf(events),
    ...unpairedCallsOf(events),
    ...danglingSpansOf(events),
    ...unfinishedTurnsOf(all, events),
    ...repeatedEffectsOf(all, events, effects),
  ];
}

async function happened(dataDir: string, nonce: string): Promise<void> {
  await until(async () => (await effectsBelow(dataDir)).includes(nonce), { what: "the tool's effect" });
}

async function isOver(session: ChaosSession): Promise<boolean> {
  return (await session.status()) === "idle" && (await session.events()).some(({ type }) => type === "session.status_idle");
}

/** The lines that tools wrote, in whatever hand: each is the nonce of its turn. */
export async function effectsBelow(dataDir: string): Promise<readonly string[]> {
  const found = (await readdir(dataDir, { recursive: true, withFileTypes: true })).filter((entry) => entry.name === "effects.txt");
  const texts = await Promise.all(found.map((entry) => readFile(join(entry.parentPath, entry.name), "utf8")));
  return texts.flatMap((text) => text.split("\n")).filter((line) => line !== "");
}
