// A case's stage with containers as hands, and what the engine shows of them.

import { join } from "node:path";
import { LABEL } from "../../../hands/docker/container.ts";
import { engine, ensureImage, removeAll } from "../../support/docker.ts";
import { ENGINE_SOCKET } from "../../support/real-part.ts";
import { type CaseSession, Stage } from "./stage.ts";

const ENV = { MANYHANDS_SANDBOX: "docker" };

export interface Contained {
  readonly id: string;
  readonly hand: string;
  readonly session: string;
  readonly state: string;
}

export class ContainerStage {
  readonly stage: Stage;
  readonly #hosts = new Set<string>();

  private constructor(stage: Stage) {
    this.stage = stage;
  }

  /** Everything up; `socketPath`: what the hand host takes for the engine, `env`: more settings. */
  static async open(socketPath = ENGINE_SOCKET, env: Readonly<Record<string, string>> = {}): Promise<ContainerStage> {
    await ensureImage();
    return new ContainerStage(await Stage.open({ env: { ...ENV, DOCKER_HOST: `unix://${socketPath}`, ...env } }));
  }

  async containers(): Promise<readonly Contained[]> {
    for (const { id } of this.stage.installation.linesOf("process.listening").filter(({ role }) => role === "hands")) this.#hosts.add(String(id));
    const found = await Promise.all(
      [...this.#hosts].map((host) => engine.listContainers({ all: true, filters: { label: [`${LABEL.host}=${host}`] } })),
    );
    return found.flat().map(({ Id, Labels, State }) => ({
      id: Id,
      hand: Labels[LABEL.hand] ?? "",
      session: Labels[LABEL.session] ?? "",
      state: State,
    }));
  }

  /** The session's one container. */
  async containerOf(session: CaseSession): Promise<Contained> {
    const own = (await this.containers()).filter((each) => each.session === session.id);
    const [container] = own;
    if (container === undefined || own.length > 1) throw new Error(`session ${session.id} has ${own.length} containers`);
    return container;
  }

  /** Where a session's /workspace is on this machine. */
  async workspaceOf(session: CaseSession): Promise<string> {
    return join(this.folder, (await this.containerOf(session)).hand, "workspace");
  }

  /** The hands' folders. */
  get folder(): string {
    return join(this.stage.installation.dataDir, "hands/sandboxes");
  }

  /** What commands left running in a session's container: everything but the runner, its waiting shell and what keeps the container up. */
  async processesOf(session: CaseSession): Promise<readonly string[]> {
    const { id } = await this.containerOf(session);
    const { Processes } = await engine.getContainer(id).top({ ps_args: "-eo pid,comm,args" });
    const all: readonly (readonly string[])[] = Processes;
    return all.map(([, name = "", args = ""]) => ({ name, args })).flatMap(({ name, args }) => (isOurs(name, args) ? [] : [args]));
  }

  async close(): Promise<void> {
    await this.containers().catch(() => []);
    await this.stage.close();
    for (const host of this.#hosts) await removeAll(host);
  }
}

const isOurs = (name: string, args: string): boolean =>
  name === "docker-init" || args === "sleep infinity" || args.includes("/opt/manyhands/") || args.startsWith("bash --norc --noprofile -c");

/** One bash call as a line of a script. */
export const bash = (command: string, more: object = {}): string => `call bash: ${JSON.stringify({ command, ...more })}`;
