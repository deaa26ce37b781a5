// The Docker driver: one container a hand, made by the first call that needs it.
//
//   D1  Whose a container is stands on it. A host that starts takes its own up again and removes what no hand owns, and what is dead; so does every sweep.
//   D2  A removal that fails is tried again until it is done; a hand's folder stays as long as its container may be there.
//   D3  At most CONTAINERS_MAX containers are up, and STARTS_AT_ONCE of them on their way; who has been idle for longest makes room.

import { basename } from "node:path";
import type { Logger } from "pino";
import type { SandboxDriver } from "../sandbox.ts";
import { inspect, type Limits, listContainers, nameOf, removeContainer } from "./container.ts";
import { Doors } from "./door.ts";
import { type Engine, worded } from "./engine.ts";
import { installRunner, userOfCommands } from "./folders.ts";
import { DockerSandbox } from "./sandbox.ts";

const STARTS_AT_ONCE = 4;

export interface DockerOptions {
  readonly engine: Engine;
  /** The hand host's id: the owner that stands on its containers. */
  readonly host: string;
  readonly image: string;
  readonly limits: Limits;
  readonly containersMax: number;
  /** The hand host's own folder. */
  readonly dataDir: string;
  readonly log: Logger;
  /** The vault proxy, through which sandboxes go out; null or absent: none does. */
  readonly vaultUrl?: string | null;
  /** The built `hands` folder; the one that this file is in unless said otherwise. */
  readonly built?: URL;
}

export async function dockerDriver(options: DockerOptions): Promise<SandboxDriver> {
  const { engine, host, image, limits, log } = options;
  const runner = await installRunner(options.built ?? new URL("../", import.meta.url), options.dataDir);
  const sandboxes = new Set<DockerSandbox>();
  const room = new Room(sandboxes, options.containersMax);
  const starts = new Gate(STARTS_AT_ONCE);
  const doors = new Doors(options.vaultUrl ?? null, log);
  /** Hands whose container outlived an earlier host. */
  const left = new Set<string>();

  const ofHand = (hand: string) => [...sandboxes].find((sandbox) => sandbox.hand === hand);
  /** One that did not run when it was listed may be on its way up. */
  const isAtWork = async (hand: string, id: string): Promise<boolean> => {
    if (ofHand(hand)?.isBusy === true) return true;
    const state = (await inspect(engine, id))?.State;
    return state?.Running === true && !state.Paused;
  };

  return {
    name: "docker",
    takes: ["docker", "virtual"],
    open(folder, isAdopted, session = "") {
      const hand = basename(folder);
      const sandbox = new DockerSandbox({
        engine,
        folder,
        spec: { host, hand, session, image, limits, user: userOfCommands(), runner },
        isAdopted,
        hasContainer: left.delete(hand),
        room,
        starts,
        openDoor: (door) => doors.open(session, door),
        log,
      });
      sandboxes.add(sandbox);
      return sandbox;
    },
    admit: (holder, wayOut) => doors.admit(holder, wayOut),
    async sweep(isOwned, isStart) {
      try {
        const found = await listContainers(engine, host);
        const running: string[] = [];
        for (const { id, hand, isRunning } of found) {
          if (isOwned(hand) && (isRunning || (!isStart && (await isAtWork(hand, id))))) {
            running.push(hand);
            const sandbox = isStart ? undefined : ofHand(hand);
            if (sandbox === undefined) left.add(hand);
            else if (isRunning) sandbox.found();
            continue;
          }
          await removeContainer(engine, id);
          log.info({ hand, container: id.slice(0, 12), isOwned: isOwned(hand) }, "container.swept");
        }
        return running;
      } catch (error) {
        log.warn({ reason: worded(error) }, "container.sweep_failed");
        return null;
      }
    },
    async remove(hand) {
      try {
        // By its labels as well: a container that was renamed is still the hand's.
        for (const { id } of await listContainers(engine, host, hand)) await removeContainer(engine, id);
        for (const sandbox of sandboxes) if (sandbox.hand === hand) sandboxes.delete(sandbox);
        return true;
      } catch (error) {
        log.warn({ hand, container: nameOf(hand), reason: worded(error) }, "container.removal_failed");
        return false;
      }
    },
  };
}

/** D3 */
class Room {
  readonly #sandboxes: ReadonlySet<DockerSandbox>;
  readonly #max: number;

  constructor(sandboxes: ReadonlySet<DockerSandbox>, max: number) {
    this.#sandboxes = sandboxes;
    this.#max = max;
  }

  /** For one that is counted already. False: as many as may be are up, and all of them are at work. */
  async make(): Promise<boolean> {
    const up = [...this.#sandboxes].filter((sandbox) => sandbox.hasContainer);
    if (up.length <= this.#max) return true;
    const idle = up.filter((sandbox) => sandbox.idleSince() !== null).sort((one, other) => (one.idleSince() ?? 0) - (other.idleSince() ?? 0));
    await idle[0]?.stop("idle");
    return idle.length > 0;
  }
}

/** Lets a few through at a time; the rest wait in order. What passes it has deadlines of its own, so every wait ends. */
class Gate {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(places: number) {
    this.#free = places;
  }

  async through<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      if (next === undefined) this.#free += 1;
      else next();
    }
  }
}
