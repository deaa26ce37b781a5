// The Docker sandbox: a container and the line to its runner, both made by the first call and remade by the next one when they are lost.
//
//   K1  One start at a time, however many calls ask for it: one call never starts more than one container.
//   K2  A container that dies, is removed, or is paused or silent for too long ends its calls with what happened to it; the next call has a new one on
//       the same files, and its first bash result says that the shell is new.
//   K3  A lost line takes its container with it, at once: nothing of a call goes on where nobody hears it (B3), and nothing dead lies around.
//   K4  Whoever waits for a start hears of a cancel at once.
//   K5  Cloning is no call: no model reads what it printed, so nothing that a model must be told is told there.

import type { Logger } from "pino";
import type { Outcome, Prepared, RepositoryWanted } from "../hand.ts";
import type { Sandbox, SandboxCall } from "../sandbox.ts";
import { timeoutOf } from "../toolset.ts";
import { type ContainerSpec, ensureContainer, ForeignContainer, inspect, nameOf, removeOwn } from "./container.ts";
import { DoorError, type OpenDoor } from "./door.ts";
import { type Engine, isImageMissing, worded } from "./engine.ts";
import { prepareFolders } from "./folders.ts";
import { Link, RunnerError } from "./link.ts";
import { cloneAll } from "./repositories.ts";

const SETTLE_MS = 1_000;
const SETTLE_POLL_MS = 100;

const RESTARTED = "shell restarted; files kept\n";

export interface SandboxOptions {
  readonly engine: Engine;
  readonly folder: string;
  readonly spec: Omit<ContainerSpec, "folders"> & { readonly runner: string };
  readonly isAdopted: boolean;
  /** A container of the hand was found. */
  readonly hasContainer: boolean;
  readonly room: { make(): Promise<boolean> };
  readonly starts: { through<T>(work: () => Promise<T>): Promise<T> };
  /** Opens the container's door in this folder; null: it has no way out. */
  openDoor(folder: string): Promise<OpenDoor | null>;
  readonly log: Logger;
}

/** What becomes of an outcome before it is given. */
type Tell = (call: SandboxCall, outcome: Outcome) => Outcome;

interface Running {
  readonly call: SandboxCall;
  /** What it comes to when it is ended from outside. */
  end?: Outcome;
  /** Settles when it is ended before it was handed to the runner. */
  wake: () => void;
}

export class DockerSandbox implements Sandbox {
  readonly #options: SandboxOptions;
  readonly #running = new Map<string, Running>();
  readonly #why = new WeakMap<Link, Promise<string>>();
  #link: Link | undefined;
  #opening: Promise<Link> | undefined;
  #removing: Promise<void> | undefined;
  #door: OpenDoor | null = null;
  #hasContainer: boolean;
  #mustSayRestarted: boolean;
  #idleSince = Date.now();
  /** Clones come one after the other, whoever asks. */
  #preparing: Promise<unknown> = Promise.resolve();

  constructor(options: SandboxOptions) {
    this.#options = options;
    this.#hasContainer = options.hasContainer;
    this.#mustSayRestarted = options.isAdopted;
  }

  get hand(): string {
    return this.#options.spec.hand;
  }

  /** Also while one is being made, or could not be removed yet. */
  get hasContainer(): boolean {
    return this.#hasContainer;
  }

  /** It uses its container, or makes one. */
  get isBusy(): boolean {
    return this.#running.size > 0 || this.#opening !== undefined;
  }

  /** A container of the hand is there of which this sandbox knew nothing. */
  found(): void {
    if (this.#hasContainer) return;
    this.#hasContainer = true;
    this.#idleSince = Date.now();
  }

  /** K5 */
  prepare(repositories: readonly RepositoryWanted[]): Promise<readonly Prepared[]> {
    const clone = () => cloneAll(repositories, (call) => this.#enter(call, (_, outcome) => outcome));
    const prepared = this.#preparing.then(clone, clone);
    this.#preparing = prepared;
    return prepared;
  }

  run(call: SandboxCall): Promise<Outcome> {
    return this.#enter(call, (of, outcome) => this.#told(of, outcome));
  }

  async #enter(call: SandboxCall, told: Tell): Promise<Outcome> {
    const running: Running = { call, wake: () => {} };
    this.#running.set(call.id, running);
    try {
      return await this.#run(running, told);
    } finally {
      this.#running.delete(call.id);
      this.#idleSince = Date.now();
    }
  }

  cancel(toolUseId: string, reason: string): void {
    const running = this.#running.get(toolUseId);
    if (running === undefined || running.end !== undefined) return;
    running.end = { type: "failed", reason };
    running.wake();
    this.#link?.cancel(toolUseId);
  }

  async stop(reason: string): Promise<void> {
    for (const running of this.#running.values()) {
      running.end ??= { type: "failed", reason };
      running.wake();
    }
    await this.#opening?.catch(() => {});
    const link = this.#link;
    if (link !== undefined) {
      this.#link = undefined;
      this.#mustSayRestarted = true;
      link.lose(reason);
      await this.#why.get(link);
    }
    await this.#remove();
  }

  idleSince(): number | null {
    return this.isBusy || !this.#hasContainer ? null : this.#idleSince;
  }

  async #run(running: Running, told: Tell): Promise<Outcome> {
    const ended = new Promise<null>((resolve) => {
      running.wake = () => resolve(null);
    });
    let link: Link | null;
    try {
      link = await Promise.race([this.#ready(), ended]); // K4
    } catch (error) {
      return running.end ?? { type: "failed", reason: `the sandbox could not be started: ${this.#startFailure(error)}` };
    }
    if (running.end !== undefined || link === null) return running.end ?? { type: "failed", reason: "it was ended" };
    const { call } = running;
    const answered = await link.run(call, timeoutOf(call.tool, call.input));
    switch (answered.type) {
      case "lost":
        return running.end ?? { type: "failed", reason: `the sandbox was lost while the tool ran: ${await this.#whyLost(link)}` };
      case "cancelled":
        return running.end ?? { type: "failed", reason: "it was cancelled" };
      default:
        return told(call, answered);
    }
  }

  /** K1 */
  #ready(): Promise<Link> {
    if (this.#link !== undefined && !this.#link.isLost) return Promise.resolve(this.#link);
    this.#opening ??= this.#options.starts
      .through(() => this.#open())
      .finally(() => {
        this.#opening = undefined;
      });
    return this.#opening;
  }

  async #open(): Promise<Link> {
    const { engine, folder, spec, room, log } = this.#options;
    if (this.#link !== undefined) {
      this.#mustSayRestarted = true; // K2
      await this.#whyLost(this.#link);
      this.#link = undefined;
    }
    await this.#removing;
    const hadContainer = this.#hasContainer;
    this.#hasContainer = true;
    if (!hadContainer && !(await room.make())) {
      this.#hasContainer = false;
      throw new RunnerError("too many sandboxes are at work on this host");
    }
    const started = performance.now();
    try {
      const folders = { ...(await prepareFolders(folder, spec.user)), runner: spec.runner };
      const container = await ensureContainer(engine, { ...spec, folders });
      await this.#closeDoor();
      this.#door = await this.#options.openDoor(folders.door);
      const link: Link = await Link.open(container, spec.user, { look: () => this.#lookOver() }, this.#door?.environment);
      this.#link = link;
      void link.over.then(() => (this.#link === link ? this.#whyLost(link) : undefined)); // K3
      log.info({ hand: spec.hand, container: container.id.slice(0, 12), ms: Math.round(performance.now() - started) }, "container.ready");
      return link;
    } catch (error) {
      await this.#remove();
      throw error;
    }
  }

  #startFailure(error: unknown): string {
    if (error instanceof RunnerError || error instanceof ForeignContainer || error instanceof DoorError) return error.message;
    if (isImageMissing(error)) return `the image ${this.#options.spec.image} is not there; "manyhands image" makes it`;
    return worded(error);
  }

  /** What is wrong with a container that doesn't answer; null: nothing that can be seen. */
  async #look(): Promise<string | null> {
    const seen = await inspect(this.#options.engine, nameOf(this.hand));
    if (seen === null) return "its container was removed";
    if (seen.State.Paused) return "its container was paused";
    if (seen.State.Running) return null;
    return seen.State.OOMKilled ? "its container ran out of memory" : `its container was ended (exit code ${seen.State.ExitCode})`;
  }

  /** An engine that is in trouble itself tells nothing of a container, which may be well: its call goes on. */
  #lookOver(): Promise<string | null> {
    return this.#look().catch((error: unknown) => {
      this.#options.log.warn({ hand: this.hand, reason: worded(error) }, "container.not_seen");
      return null;
    });
  }

  /** A runner that is gone is heard of before the engine says the same of its container. */
  async #lookTwice(link: Link): Promise<string | null> {
    const deadline = performance.now() + SETTLE_MS;
    for (;;) {
      const seen = await this.#look().catch(worded);
      if (seen !== null || !link.isCut || performance.now() > deadline) return seen;
      await new Promise((resolve) => setTimeout(resolve, SETTLE_POLL_MS));
    }
  }

  /** K2 K3 */
  #whyLost(link: Link): Promise<string> {
    const known = this.#why.get(link);
    if (known !== undefined) return known;
    const why = this.#lookTwice(link).then(async (seen) => {
      const because = seen ?? link.lostBecause;
      this.#options.log.warn({ hand: this.hand, because }, "container.lost");
      await this.#remove();
      return because;
    });
    this.#why.set(link, why);
    return why;
  }

  /** A removal that fails leaves `hasContainer`, so the sweeper finds this sandbox idle and comes again. */
  #remove(): Promise<void> {
    const closing = this.#closeDoor();
    if (!this.#hasContainer) return closing;
    this.#removing ??= removeOwn(this.#options.engine, nameOf(this.hand), this.#options.spec.host)
      .then(() => {
        this.#hasContainer = false;
      })
      .catch((error: unknown) => {
        this.#options.log.warn({ hand: this.hand, reason: worded(error) }, "container.removal_failed");
      })
      .finally(() => {
        this.#removing = undefined;
      });
    return Promise.all([closing, this.#removing]).then(() => {});
  }

  async #closeDoor(): Promise<void> {
    const door = this.#door;
    this.#door = null;
    await door?.close();
  }

  /** The first bash result of a new shell says that it is new. K2 */
  #told(call: SandboxCall, outcome: Outcome): Outcome {
    if (!this.#mustSayRestarted || call.tool !== "bash" || outcome.type !== "done") return outcome;
    this.#mustSayRestarted = false;
    const [first, ...rest] = outcome.content;
    if (first?.type !== "text") return outcome;
    return { ...outcome, content: [{ type: "text", text: RESTARTED + first.text }, ...rest] };
  }
}
