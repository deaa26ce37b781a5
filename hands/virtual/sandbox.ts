// The virtual sandbox: one thread with a JavaScript shell, over a folder on the disk.
//
//   V4  A call that overruns its time, or is cancelled, ends with its thread: no loop of a sandbox can hold the host. The next call has a new one.
//   V5  What the shell carries (directory, variables) is kept here, so it outlives a thread, though not the host.
//   V6  Read-only calls that lose their thread to another call's end are run again once: they changed nothing.

import { mkdirSync } from "node:fs";
import { Worker } from "node:worker_threads";
import type { Outcome } from "../hand.ts";
import type { Sandbox, SandboxCall, SandboxDriver } from "../sandbox.ts";
import { says } from "../tools/answer.ts";
import { layOut } from "../tools/places.ts";
import { descriptorOf, timeoutOf } from "../toolset.ts";
import type { FromThread, ShellState, ToThread } from "./protocol.ts";

const THREAD_MEMORY_MB = 512;
const THREADS_MAX = 128;

const RESTARTED = "shell restarted; files kept\n";

interface Running {
  readonly call: SandboxCall;
  readonly resolve: (outcome: Outcome) => void;
  readonly timer: NodeJS.Timeout;
  readonly isRetry: boolean;
  /** False while it waits for the end of a thread that is being ended. */
  isPosted: boolean;
  /** What it comes to when its thread is gone; undefined when it is not why the thread is ended. */
  end?: Outcome;
}

/** `thread`: the built file of thread.ts; beside this one unless said otherwise. */
export function virtualDriver(thread: URL = new URL("./thread.js", import.meta.url)): SandboxDriver {
  const alive = new Set<VirtualSandbox>();
  return { name: "virtual", takes: ["virtual"], open: (folder, isAdopted) => new VirtualSandbox(folder, isAdopted, thread, alive) };
}

class VirtualSandbox implements Sandbox {
  readonly #folder: string;
  readonly #file: URL;
  /** The sandboxes of this host that have a thread. */
  readonly #alive: Set<VirtualSandbox>;
  readonly #running = new Map<string, Running>();
  #thread: Worker | undefined;
  #isEnding = false;
  #shell: ShellState | null = null;
  #mustSayRestarted: boolean;
  #idleSince = Date.now();

  constructor(folder: string, isAdopted: boolean, file: URL, alive: Set<VirtualSandbox>) {
    this.#folder = folder;
    this.#file = file;
    this.#alive = alive;
    this.#mustSayRestarted = isAdopted;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    layOut(folder);
  }

  run(call: SandboxCall): Promise<Outcome> {
    return new Promise((resolve) => this.#start(call, resolve, false));
  }

  cancel(toolUseId: string, reason: string): void {
    this.#kill(toolUseId, { type: "failed", reason });
  }

  async stop(reason: string): Promise<void> {
    for (const running of this.#running.values()) running.end ??= { type: "failed", reason };
    await this.#endThread();
  }

  idleSince(): number | null {
    return this.#thread === undefined || this.#running.size > 0 ? null : this.#idleSince;
  }

  #start(call: SandboxCall, resolve: Running["resolve"], isRetry: boolean): void {
    const ms = timeoutOf(call.tool, call.input);
    const timedOut = { type: "done", ...says(`Timed out after ${ms} ms. It and all that it had started were ended; files kept.`, true) } as const;
    const timer = setTimeout(() => this.#kill(call.id, timedOut), ms);
    const running: Running = { call, resolve, timer, isRetry, isPosted: false };
    this.#running.set(call.id, running);
    if (!this.#isEnding) this.#post(running);
  }

  #post(running: Running): void {
    const thread = this.#thread ?? this.#openThread();
    if (thread === null) {
      this.#take(running);
      running.resolve({ type: "failed", reason: "too many sandboxes are at work on this host" });
      return;
    }
    running.isPosted = true;
    const message: ToThread = { ...running.call, shell: this.#shell };
    thread.postMessage(message);
  }

  #openThread(): Worker | null {
    if (!this.#makeRoom()) return null;
    const limits = { maxOldGenerationSizeMb: THREAD_MEMORY_MB };
    let thread: Worker;
    try {
      thread = new Worker(this.#file, { workerData: this.#folder, env: {}, execArgv: [], stdout: true, stderr: true, resourceLimits: limits });
    } catch {
      // The system gives no thread more; the call says so, and the next one tries again.
      return null;
    }
    thread.stdout.resume();
    thread.stderr.resume();
    let cause = "it ended unexpectedly";
    thread.on("message", (said: FromThread) => this.#finish(said));
    thread.on("error", (error: unknown) => {
      const code = error instanceof Error && "code" in error ? error.code : undefined;
      cause = code === "ERR_WORKER_OUT_OF_MEMORY" ? "it ran out of memory" : "it broke";
    });
    thread.on("exit", () => this.#lost(cause));
    this.#thread = thread;
    this.#alive.add(this);
    return thread;
  }

  /** True when one more thread may start; ends the one that has been idle for longest where needed. */
  #makeRoom(): boolean {
    if (this.#alive.size < THREADS_MAX) return true;
    const idle = [...this.#alive].filter((sandbox) => sandbox.idleSince() !== null && !sandbox.#isEnding);
    idle.sort((one, other) => one.#idleSince - other.#idleSince);
    void idle[0]?.stop("idle");
    return idle.length > 0;
  }

  #finish({ id, answer, shell }: FromThread): void {
    const running = this.#running.get(id);
    if (running === undefined) return;
    this.#take(running);
    if (shell !== undefined) this.#shell = shell;
    running.resolve(this.#told(running.call, { type: "done", ...answer }));
  }

  /** The thread is gone: whoever it was ended for gets that outcome, the read-only ones beside it run again. V4 V6 */
  #lost(cause: string): void {
    const wasEnded = this.#isEnding;
    this.#thread = undefined;
    this.#isEnding = false;
    this.#alive.delete(this);
    const all = [...this.#running.values()];
    for (const running of all) this.#take(running);
    for (const running of all) {
      const { call, resolve, end, isPosted, isRetry } = running;
      const mayRetry = wasEnded && !isRetry && descriptorOf(call.tool)?.isReadOnly === true;
      if (end !== undefined) resolve(this.#told(call, end));
      else if (!isPosted || mayRetry) this.#start(call, resolve, isPosted);
      else resolve({ type: "failed", reason: `the sandbox's process was lost while the tool ran: ${cause}` });
    }
  }

  #kill(toolUseId: string, end: Outcome): void {
    const running = this.#running.get(toolUseId);
    if (running === undefined) return;
    running.end ??= end;
    void this.#endThread();
  }

  async #endThread(): Promise<void> {
    this.#isEnding = this.#thread !== undefined;
    await this.#thread?.terminate();
  }

  #take(running: Running): void {
    clearTimeout(running.timer);
    this.#running.delete(running.call.id);
    this.#idleSince = Date.now();
  }

  /** The first bash result after the host's restart says that the shell is new. */
  #told(call: SandboxCall, outcome: Outcome): Outcome {
    if (!this.#mustSayRestarted || call.tool !== "bash" || outcome.type !== "done") return outcome;
    this.#mustSayRestarted = false;
    const [first, ...rest] = outcome.content;
    if (first?.type !== "text") return outcome;
    return { ...outcome, content: [{ type: "text", text: RESTARTED + first.text }, ...rest] };
  }
}
