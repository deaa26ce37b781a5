// One container of a hand: what it is made of, how it is found again, how it goes away.
//
//   C1  A container is named by its hand: the engine itself sees to it that a hand never has two.
//   C2  Whose it is stands on the container (labels), so that it can be found by a host that remembers nothing.
//   C3  What is made halfway goes away again; a name that is taken by a leftover of ours is freed first.
//   C4  Nothing is given to a container but its own folders: no network, no capabilities, no way to more rights, a root that can't be written,
//       a user that is not root, and limits for memory, processes and processor time.

import { createHash } from "node:crypto";
import type Docker from "dockerode";
import { z } from "zod";
import { ASK_MS, type Engine, readAnswer, statusOf, within } from "./engine.ts";
import { DOOR_FOLDER, RUNNER_FOLDER } from "./protocol.ts";

const CREATE_MS = 30_000;
const START_MS = 60_000;
const REMOVE_MS = 30_000;
const CREATE_ATTEMPTS = 3;

export const LABEL = { host: "manyhands.host", hand: "manyhands.hand", session: "manyhands.session", spec: "manyhands.spec" } as const;

/** What a container may use. */
export interface Limits {
  readonly memoryMb: number;
  readonly pids: number;
  readonly cpus: number;
  /** Of /tmp, which is memory. */
  readonly tmpMb: number;
}

export interface ContainerSpec {
  /** Who owns it: the hand host's id. */
  readonly host: string;
  readonly hand: string;
  readonly session: string;
  readonly image: string;
  readonly limits: Limits;
  /** Commands run as this user and group. */
  readonly user: User;
  /** Folders of this machine: the hand's own, and the runner's program. */
  readonly folders: { readonly workspace: string; readonly session: string; readonly door: string; readonly runner: string };
}

export interface User {
  readonly uid: number;
  readonly gid: number;
}

const State = z.object({
  Id: z.string(),
  Config: z.object({ Labels: z.record(z.string(), z.string()).nullish() }),
  State: z.object({
    Running: z.boolean(),
    Paused: z.boolean().catch(false),
    OOMKilled: z.boolean().catch(false),
    ExitCode: z.number().catch(0),
  }),
});
export type ContainerState = z.infer<typeof State>;

export const nameOf = (hand: string): string => `manyhands-${hand}`;

/** Finds the hand's container if it is as it should be, or makes one; it runs then. C1 C3 */
export async function ensureContainer(engine: Engine, spec: ContainerSpec): Promise<Docker.Container> {
  const name = nameOf(spec.hand);
  const labels = labelsOf(spec);
  for (let attempt = 1; ; attempt += 1) {
    const known = await inspect(engine, name);
    if (known !== null) {
      const owner = known.Config.Labels?.[LABEL.host];
      if (owner !== spec.host)
        throw new ForeignContainer(`the container name ${name} is taken by ${owner === undefined ? "somebody else" : "another host"}`);
      const isAsWanted = known.Config.Labels?.[LABEL.spec] === labels[LABEL.spec] && known.State.Running && !known.State.Paused;
      if (isAsWanted) return engine.getContainer(known.Id);
      await removeContainer(engine, known.Id);
    }
    try {
      return await make(engine, spec, name, labels);
    } catch (error) {
      // Whatever was made of it. If the engine can't remove it now, the next attempt or the sweeper finds it by its name and labels.
      if (statusOf(error) !== 409) await removeOwn(engine, name, spec.host).catch(() => {});
      if (statusOf(error) !== 409 || attempt >= CREATE_ATTEMPTS) throw error;
    }
  }
}

/** The name is in use by a container that is not ours to remove. */
export class ForeignContainer extends Error {
  override readonly name = "ForeignContainer";
}

/** Null: there is none. */
export async function inspect(engine: Engine, idOrName: string): Promise<ContainerState | null> {
  try {
    const said: unknown = await within(ASK_MS, (abortSignal) => engine.getContainer(idOrName).inspect({ abortSignal }));
    return readAnswer(State, said);
  } catch (error) {
    if (statusOf(error) === 404) return null;
    throw error;
  }
}

/** Removes a container by its name, if this host owns it. */
export async function removeOwn(engine: Engine, name: string, host: string): Promise<void> {
  const known = await inspect(engine, name);
  if (known !== null && known.Config.Labels?.[LABEL.host] === host) await removeContainer(engine, known.Id);
}

/** It is gone when this resolves; gone already is as good. */
export async function removeContainer(engine: Engine, idOrName: string): Promise<void> {
  try {
    await within(REMOVE_MS, (abortSignal) => engine.getContainer(idOrName).remove({ force: true, v: true, abortSignal }));
  } catch (error) {
    if (statusOf(error) === 404) return;
    // Somebody else removes it at this moment: it is gone when it can't be found any more.
    if (statusOf(error) === 409 && (await isGoneSoon(engine, idOrName))) return;
    throw error;
  }
}

async function isGoneSoon(engine: Engine, idOrName: string): Promise<boolean> {
  for (let poll = 0; poll < 20; poll += 1) {
    if ((await inspect(engine, idOrName)) === null) return true;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return false;
}

const Listed = z.array(z.object({ Id: z.string(), State: z.string(), Labels: z.record(z.string(), z.string()).nullish() }));

/** The containers of a host, running or not, and their hands. C2 */
export async function listContainers(
  engine: Engine,
  host: string,
  hand?: string,
): Promise<readonly { readonly id: string; readonly hand: string; readonly isRunning: boolean }[]> {
  const label = [`${LABEL.host}=${host}`, ...(hand === undefined ? [] : [`${LABEL.hand}=${hand}`])];
  const said: unknown = await within(ASK_MS, (abortSignal) => engine.listContainers({ all: true, filters: { label }, abortSignal }));
  const found = readAnswer(Listed, said);
  return found.map(({ Id, State: state, Labels }) => ({ id: Id, hand: Labels?.[LABEL.hand] ?? "", isRunning: state === "running" }));
}

async function make(engine: Engine, spec: ContainerSpec, name: string, labels: Record<string, string>): Promise<Docker.Container> {
  const options = { ...optionsOf(spec), name, Labels: labels };
  const container = await within(CREATE_MS, (abortSignal) => engine.createContainer({ ...options, abortSignal }));
  await within(START_MS, (abortSignal) => container.start({ abortSignal }));
  return container;
}

/** C2. The last label tells whether a container that is found is one that would be made today. */
function labelsOf(spec: ContainerSpec): Record<string, string> {
  const made = createHash("sha256")
    .update(JSON.stringify(optionsOf(spec)))
    .digest("hex")
    .slice(0, 32);
  return { [LABEL.host]: spec.host, [LABEL.hand]: spec.hand, [LABEL.session]: spec.session, [LABEL.spec]: made };
}

/** Keeps a container up, and can be ended by nobody inside: it belongs to a user of its own. */
const KEEPER = { command: ["sleep", "infinity"], uid: 65_534 };

/** C4 */
function optionsOf({ image, limits, user, folders }: ContainerSpec): Docker.ContainerCreateOptions {
  const memory = limits.memoryMb * 1024 * 1024;
  const keeper = user.uid === KEEPER.uid ? KEEPER.uid - 1 : KEEPER.uid;
  return {
    Image: image,
    Entrypoint: [],
    Cmd: KEEPER.command,
    User: `${keeper}:${keeper}`,
    WorkingDir: "/",
    Hostname: "hand",
    HostConfig: {
      Init: true,
      NetworkMode: "none",
      ReadonlyRootfs: true,
      CapDrop: ["ALL"],
      SecurityOpt: ["no-new-privileges"],
      Memory: memory,
      MemorySwap: memory,
      PidsLimit: limits.pids,
      NanoCpus: Math.round(limits.cpus * 1e9),
      IpcMode: "private",
      Tmpfs: { "/tmp": `size=${limits.tmpMb}m,mode=1777,nosuid,nodev,exec` },
      Mounts: [
        bind(folders.workspace, "/workspace", false),
        bind(folders.session, "/mnt/session", false),
        bind(folders.door, DOOR_FOLDER, true),
        bind(folders.runner, RUNNER_FOLDER, true),
      ],
      RestartPolicy: { Name: "no" },
      LogConfig: { Type: "none", Config: {} },
    },
  };
}

/** Private: what is mounted on either side stays there. A folder that is missing is an error, and never made by the engine. */
function bind(Source: string, Target: string, ReadOnly: boolean): Docker.MountSettings {
  return { Type: "bind", Source, Target, ReadOnly, BindOptions: { Propagation: "rprivate" } };
}
