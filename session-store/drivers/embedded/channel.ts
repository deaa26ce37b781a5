// The way to the store's thread and back: one promise a call.
//
//   C1  At most QUEUED_MAX calls and QUEUED_BYTES_MAX bytes are on their way; more are refused (`store_busy`).
//   C2  A call is answered within its deadline, or refused: a read with `store_busy`, a write with `store_in_doubt`.
//   C3  When the thread fails, everything is refused and `onFatal` is told: this process must not go on.

import { Worker } from "node:worker_threads";
import { REFUSALS, Refusal, type RefusalCode } from "../../refusal.ts";
import { type Answer, type CallName, type Calls, type FromWorker, READS, type Ring, type WorkerOptions } from "./protocol.ts";

const QUEUED_MAX = 10_000;
const QUEUED_BYTES_MAX = 256 * 1024 * 1024;
const DEADLINE_MS = 10_000;
const SWEEP_MS = 200;
/** Beyond the wait for the lock: reading and repairing a large write-ahead log. */
const OPEN_MS = 60_000;
const CLOSE_MS = 3_000;

export interface ChannelHooks {
  readonly onFatal: (error: Error) => void;
  readonly onRings: (rings: readonly Ring[], isDue: boolean) => void;
}

interface Waiting {
  readonly name: CallName;
  readonly bytes: number;
  /** On a clock that is never set: a wall clock set forward would refuse everything that waits. */
  readonly deadline: number;
  readonly settle: (answer: Answer) => void;
  isSettled: boolean;
}

export class Channel {
  readonly #worker: Worker;
  readonly #hooks: ChannelHooks;
  readonly #waiting = new Map<number, Waiting>();
  readonly #sweep: NodeJS.Timeout;
  #count = 0;
  #bytes = 0;
  /** Why nothing more is taken; null while it is open. */
  #over: Refusal | null = null;
  #exited: Promise<void>;

  private constructor(worker: Worker, hooks: ChannelHooks) {
    this.#worker = worker;
    this.#hooks = hooks;
    this.#exited = new Promise((resolve) => worker.once("exit", () => resolve()));
    this.#sweep = setInterval(() => this.#refuseLate(), SWEEP_MS);
    this.#sweep.unref();
  }

  /** Starts the thread and waits until its store is open; refuses (`store_unfit`) when it can't be. */
  static async open(file: string, options: WorkerOptions, hooks: ChannelHooks): Promise<Channel> {
    const worker = new Worker(file, { workerData: options, name: "session-store", execArgv: [], env: {} });
    const channel = new Channel(worker, hooks);
    await new Promise<void>((resolve, reject) => {
      const unfit = (says: string, cause?: unknown) => {
        clearTimeout(timer);
        channel.#over = new Refusal("store_unfit", says, { cause });
        clearInterval(channel.#sweep);
        void worker.terminate();
        reject(channel.#over);
      };
      const timer = setTimeout(() => unfit("The store did not open in time."), options.lockWaitMs + OPEN_MS);
      worker.once("error", (error) => unfit(`The store's thread failed to start: ${error.message}`, error));
      const ended = () => unfit("The store's thread ended before it was ready.");
      worker.once("exit", ended);
      worker.once("message", (message: FromWorker) => {
        worker.off("exit", ended);
        if (message.type === "unfit") return unfit(message.says);
        clearTimeout(timer);
        worker.removeAllListeners("error");
        worker.on("message", (next: FromWorker) => channel.#hear(next));
        worker.once("error", (error) => channel.#fail(error.message, error));
        worker.once("exit", () => channel.#fail("its thread ended"));
        resolve();
      });
    });
    return channel;
  }

  ask<Name extends CallName>(name: Name, ask: Calls[Name]["ask"], { bytes = 0, deadlineMs = DEADLINE_MS } = {}): Promise<Calls[Name]["answer"]> {
    if (this.#over) return Promise.reject(refusalLike(this.#over));
    if (this.#waiting.size >= QUEUED_MAX || this.#bytes + bytes > QUEUED_BYTES_MAX)
      return Promise.reject(new Refusal("store_busy", undefined, { detail: `${this.#waiting.size} calls, ${this.#bytes} bytes are queued` }));
    return new Promise((resolve, reject) => {
      this.#count += 1;
      const number = this.#count;
      const settle = (answer: Answer) => {
        if ("refused" in answer) reject(new Refusal(answer.refused, answer.says, { detail: answer.detail }));
        // The thread answers a call by its number with what its step gives.
        else resolve(answer.value as Calls[Name]["answer"]);
      };
      this.#worker.postMessage({ number, name, ask });
      this.#bytes += bytes;
      this.#waiting.set(number, { name, bytes, deadline: performance.now() + deadlineMs, settle, isSettled: false });
    });
  }

  /** Lets what is queued come to its end, then closes the store. */
  async close(): Promise<void> {
    if (!this.#over) {
      this.#over = new Refusal("store_busy", "The store is closed.");
      this.#worker.postMessage({ name: "close" });
    }
    const timer = setTimeout(() => void this.#worker.terminate(), CLOSE_MS);
    await this.#exited;
    clearTimeout(timer);
    clearInterval(this.#sweep);
    this.#refuseAll("The store was closed before it answered.");
  }

  #hear(message: FromWorker): void {
    if (message.type === "fatal") this.#fail(message.says);
    if (message.type !== "answers") return;
    for (const answer of message.answers) {
      const waiting = this.#waiting.get(answer.number);
      if (!waiting) continue;
      this.#waiting.delete(answer.number);
      this.#bytes -= waiting.bytes;
      if (!waiting.isSettled) waiting.settle(answer);
    }
    if (message.rings.length > 0 || message.isDue) this.#hooks.onRings(message.rings, message.isDue);
  }

  #refuseLate(): void {
    const now = performance.now();
    // What is late stays counted until the thread is done with it: the queue is as long as it is.
    for (const [number, waiting] of this.#waiting) if (waiting.deadline < now) refuse(number, waiting, "The store did not answer in time.");
  }

  #refuseAll(says: string): void {
    for (const [number, waiting] of this.#waiting) refuse(number, waiting, says);
    this.#waiting.clear();
    this.#bytes = 0;
  }

  #fail(reason: string, cause?: Error): void {
    if (this.#over) return;
    this.#over = new Refusal("store_unfit", "The store failed; this process has to start anew.", { detail: reason });
    this.#refuseAll("The store failed before it answered.");
    this.#hooks.onFatal(new Error(`The embedded store failed: ${reason}`, { cause }));
  }
}

function refuse(number: number, waiting: Waiting, says: string): void {
  if (waiting.isSettled) return;
  waiting.isSettled = true;
  const refused: RefusalCode = READS.has(waiting.name) || waiting.name === "ping" ? "store_busy" : "store_in_doubt";
  waiting.settle({ number, refused, says: REFUSALS[refused].says, detail: says });
}

/** A fresh error for each caller, so that each has its own stack. */
function refusalLike({ code, message, detail }: Refusal): Refusal {
  return new Refusal(code, message, { detail });
}
