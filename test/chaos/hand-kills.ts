// Kills around containers: the hand host, its line to the engine, the containers themselves, while hands are made, used and given back. Afterwards each
// call has come to one end and ran at most once, and exactly the containers and folders of live hands are there.

import { readdirSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { HandsClient } from "../../hands/client.ts";
import { LABEL } from "../../hands/docker/container.ts";
import type { HandRef, Holder, Outcome } from "../../hands/hand.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";
import { type HostProcess, makePlace, type Place } from "../drivers/hand-host.ts";
import { engine, removeAll } from "../support/docker.ts";
import { type EngineLine, openEngineLine } from "../support/engine-line.ts";
import { until } from "../support/until.ts";
import type { Faults } from "./checkers.ts";
import type { Chance } from "./seed.ts";

const HANDS_MAX = 4;
const CALLS_PER_ROUND = 4;
/** From a kill to the end of every call that it met. */
const ENDED_MS = 150_000;
/** From there to exactly what is to be there. */
const CLEAN_MS = 90_000;
/** Longer than a request may wait for the engine. */
const SILENT_MS_MAX = 13_000;
const ODD_MS_MAX = 4_000;
const never = new AbortController().signal;

export const KILLS = ["host", "cut", "silent", "garbage", "odd", "kill", "pause", "remove"] as const;
export type HandKill = (typeof KILLS)[number];

interface LiveHand {
  readonly holder: Holder;
  readonly ref: HandRef;
  /** Ids of calls that were made, each of which writes its id once. */
  readonly calls: Map<string, Outcome | null>;
  isGone: boolean;
}

/** Each kind as often as the next, in an order that chance decides; with the first of them everything has been met once. */
export function handKillsOf(count: number, chance: Chance): readonly HandKill[] {
  const kills = Array.from({ length: count }, (_, at) => KILLS[at % KILLS.length] ?? "host");
  for (let at = kills.length - 1; at > 0; at -= 1) {
    const other = chance.between(0, at);
    const [one, two] = [kills[at], kills[other]];
    if (one !== undefined && two !== undefined) [kills[at], kills[other]] = [two, one];
  }
  return kills;
}

export class HandStage {
  readonly #chance: Chance;
  readonly #line: EngineLine;
  readonly #place: Place;
  readonly #client: HandsClient;
  readonly #hands: LiveHand[] = [];
  readonly #hosts = new Set<string>();
  #host: HostProcess;
  #calls = 0;

  private constructor(made: { chance: Chance; line: EngineLine; place: Place; host: HostProcess }) {
    this.#chance = made.chance;
    this.#line = made.line;
    this.#place = made.place;
    this.#host = made.host;
    this.#client = made.place.client();
    this.#hosts.add(made.host.id);
  }

  static async open(chance: Chance): Promise<HandStage> {
    const line = await openEngineLine();
    const place = makePlace({
      MANYHANDS_SANDBOX: "docker",
      DOCKER_HOST: `unix://${line.socketPath}`,
      MANYHANDS_DOCKER_MEMORY_MB: "256",
    });
    return new HandStage({ chance, line, place, host: await place.start() });
  }

  /** One kill in the middle of other things. Gives what is wrong afterwards. */
  async round(kill: HandKill): Promise<Faults> {
    const running = await this.#makeBusy();
    await sleep(this.#chance.between(0, 1_500));
    const released = this.#releaseSome();
    await this.#strike(kill);
    await within(ENDED_MS, Promise.all([...running, ...released]), `the calls that met ${kill}`);
    return [...(await this.#faultsOfHands()), ...(await this.#faultsOfCalls()), ...(await this.#faultsOfNext())];
  }

  async close(): Promise<void> {
    await this.#place.clean();
    for (const host of this.#hosts) await removeAll(host);
    await this.#line.close();
  }

  /** Hands as many as there may be, calls on their way to each of some. */
  async #makeBusy(): Promise<readonly Promise<unknown>[]> {
    while (this.#live().length < HANDS_MAX) {
      const holder: Holder = { session: mintSession(), fence: 1 as Fence };
      const ref = await this.#client.provision(holder, { environment_id: "env_1" }, never);
      this.#hands.push({ holder, ref, calls: new Map(), isGone: false });
    }
    return Array.from({ length: CALLS_PER_ROUND }, () => {
      const hand = this.#chance.pick(this.#live() as [LiveHand, ...LiveHand[]]);
      return this.#call(hand, this.#chance.pick(["true", "sleep 0.3", "sleep 3", "(setsid sleep 300 &); sleep 2"]));
    });
  }

  async #call(hand: LiveHand, rest: string): Promise<Outcome | null> {
    this.#calls += 1;
    const id = `call_${this.#calls}`;
    hand.calls.set(id, null);
    const input = { command: `echo ${id} >> effects.txt; ${rest}`, timeout_ms: 60_000 };
    try {
      const outcome = await this.#client.execute(hand.holder, hand.ref, { id, name: "bash", input }, false, never);
      hand.calls.set(id, outcome);
      return outcome;
    } catch (error) {
      // Its hand was given back meanwhile.
      if (hand.isGone) return null;
      throw error;
    }
  }

  #releaseSome(): readonly Promise<void>[] {
    if (this.#chance.next() < 0.5) return [];
    const hand = this.#chance.pick(this.#live() as [LiveHand, ...LiveHand[]]);
    hand.isGone = true;
    return [this.#client.release(hand.holder.session, hand.ref.host, never)];
  }

  async #strike(kill: HandKill): Promise<void> {
    switch (kill) {
      case "host":
        await this.#host.end("SIGKILL");
        this.#host = await this.#place.start();
        this.#hosts.add(this.#host.id);
        return;
      case "cut":
      case "silent":
      case "garbage":
      case "odd":
        this.#line.set(kill);
        await sleep(this.#chance.between(100, kill === "silent" ? SILENT_MS_MAX : ODD_MS_MAX));
        this.#line.set("good");
        return;
      case "kill":
      case "pause":
      case "remove": {
        const all = await this.#containers();
        const [first, ...rest] = all;
        if (first === undefined) return;
        const container = engine.getContainer(this.#chance.pick([first, ...rest]).id);
        const act = { kill: () => container.kill(), pause: () => container.pause(), remove: () => container.remove({ force: true }) }[kill];
        // It may have gone, or never have come up, by itself.
        await act().catch((error: unknown) => {
          if (!(error instanceof Error && "statusCode" in error && (error.statusCode === 404 || error.statusCode === 409))) throw error;
        });
      }
    }
  }

  /** Exactly the containers and folders of live hands: at most one each, of ours, and none that is dead. */
  async #faultsOfHands(): Promise<Faults> {
    const live = new Set(this.#live().map(({ ref }) => ref.hand));
    let faults: string[] = [];
    const look = async () => {
      const containers = await this.#containers();
      const names = containers.map(({ hand }) => hand);
      const folders = readdirSync(join(this.#place.dataDir, "hands/sandboxes"));
      faults = [
        ...names.filter((hand) => !live.has(hand)).map((hand) => `a container of ${hand}, which was given back`),
        ...names.filter((hand, at) => names.indexOf(hand) !== at).map((hand) => `more than one container of ${hand}`),
        ...containers.filter(({ state }) => state !== "running").map(({ hand, state }) => `a container of ${hand} that is ${state}`),
        ...containers.filter(({ volumes }) => volumes > 0).map(({ hand }) => `a container of ${hand} with volumes`),
        ...folders.filter((hand) => !live.has(hand)).map((hand) => `the folder of ${hand}, which was given back`),
      ];
      return faults.length === 0;
    };
    await until(look, { timeoutMs: CLEAN_MS, pollMs: 250, what: () => faults.join("; ") }).catch((error: Error) => faults.push(error.message));
    return faults;
  }

  /** A call that was answered has happened; no call happened twice. */
  async #faultsOfCalls(): Promise<Faults> {
    const faults: string[] = [];
    for (const { ref, calls } of this.#live()) {
      const text = await readFile(join(this.#place.dataDir, "hands/sandboxes", ref.hand, "workspace/effects.txt"), "utf8").catch(() => "");
      const effects = text.split("\n").filter((line) => line !== "");
      for (const [id, outcome] of calls) {
        const times = effects.filter((line) => line === id).length;
        if (times > 1) faults.push(`${id} happened ${times} times`);
        if (times === 0 && outcome?.type === "done" && !outcome.isError) faults.push(`${id} was answered and did not happen`);
        if (outcome === null) faults.push(`${id} has no outcome`);
      }
    }
    return faults;
  }

  /** Every live hand takes another call, and then each that was used has exactly one container. */
  async #faultsOfNext(): Promise<Faults> {
    const live = this.#live();
    const said = await within(ENDED_MS, Promise.all(live.map((hand) => this.#call(hand, "true"))), "the calls after a kill");
    // A pause may be met by the very next call; nothing may be met by the one after.
    const again = await within(
      ENDED_MS,
      Promise.all(live.map((hand, at) => (said[at]?.type === "done" ? said[at] : this.#call(hand, "true")))),
      "again",
    );
    const faults = again.flatMap((outcome, at) =>
      outcome?.type === "done" && !outcome.isError ? [] : [`${live[at]?.ref.hand}: ${JSON.stringify(outcome)}`],
    );
    const there = (await this.#containers()).map(({ hand }) => hand).sort();
    const wanted = live.map(({ ref }) => ref.hand).sort();
    return there.join() === wanted.join() ? faults : [...faults, `containers of ${there.join()} where ${wanted.join()} are live`];
  }

  #live(): readonly LiveHand[] {
    return this.#hands.filter(({ isGone }) => !isGone);
  }

  async #containers() {
    const found = await Promise.all(
      [...this.#hosts].map((host) => engine.listContainers({ all: true, filters: { label: [`${LABEL.host}=${host}`] } })),
    );
    return found.flat().map(({ Id, Labels, State, Mounts }) => ({
      id: Id,
      hand: Labels[LABEL.hand] ?? "",
      state: State,
      volumes: Mounts.filter(({ Type }) => Type === "volume").length,
    }));
  }
}

async function within<T>(ms: number, work: Promise<T>, what: string): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not end within ${ms} ms`)), ms);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
