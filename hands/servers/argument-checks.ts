// Are a call's arguments what its tool's own schema wants? A model that is told at once what is wrong tries again; a server may do anything with them.
//
//   G1  Judged is by the schema as the server gave it, not by the form that the model's API takes.
//   G2  A schema is not to be trusted: it is read in a thread with bounded memory, which is ended when a check takes longer than CHECK_MS. A schema that
//       did that is not judged by any more.
//   G3  What has a default may be absent, also where the schema lists it as required. What may be absent may be null.
//   G4  What can't be judged passes: the server judges by itself anyway.

import { createHash } from "node:crypto";
import { Worker } from "node:worker_threads";
import type { Logger } from "pino";
import { cut } from "../tools/cap.ts";
import { REASON_CHARS_MAX } from "./limits.ts";

const CHECK_MS = 2_000;
const START_MS = 10_000;
const THREAD_MEMORY_MB = 64;
const WAITING_MAX = 256;
const SPOILT_MAX = 1_000;

type Schema = Readonly<Record<string, unknown>>;

export interface Asked {
  readonly id: number;
  readonly schema: Schema;
  readonly input: unknown;
}
export type Judged = { readonly type: "ready" } | { readonly type: "judged"; readonly id: number; readonly wrong: string | null };

interface Waiting extends Asked {
  readonly tell: (wrong: string | null) => void;
}

export class ArgumentChecks {
  readonly #file: URL;
  readonly #log: Logger;
  /** Digests of schemas that took too long. G2 */
  readonly #spoilt = new Set<string>();
  /** The first is with the thread, once that is ready. */
  readonly #waiting: Waiting[] = [];
  #thread: Worker | null = null;
  #isReady = false;
  #timer: NodeJS.Timeout | undefined;
  #asked = 0;

  /** `file`: the built file of argument-thread.ts; beside this one unless said otherwise. */
  constructor(log: Logger, file: URL = new URL("./argument-thread.js", import.meta.url)) {
    this.#log = log;
    this.#file = file;
  }

  /** What is wrong with the arguments, in words for the model; null: nothing, or nobody can tell. */
  async wrongIn(schema: unknown, input: unknown): Promise<string | null> {
    if (!isSchema(schema) || this.#waiting.length >= WAITING_MAX || this.#spoilt.has(digestOf(schema))) return null;
    const wrong = await new Promise<string | null>((tell) => {
      this.#asked += 1;
      this.#waiting.push({ id: this.#asked, schema, input, tell });
      if (this.#waiting.length === 1) this.#next();
    });
    return wrong === null ? null : cut(wrong.toWellFormed(), REASON_CHARS_MAX);
  }

  async stop(): Promise<void> {
    for (const { tell } of this.#waiting.splice(0)) tell(null);
    await this.#end();
  }

  #next(): void {
    clearTimeout(this.#timer);
    const [first] = this.#waiting;
    if (first === undefined) return;
    try {
      this.#thread ??= this.#start();
    } catch (error) {
      // There is no room for a thread. G4
      this.#log.warn({ err: error }, "arguments.not_judged");
      for (const { tell } of this.#waiting.splice(0)) tell(null);
      return;
    }
    const { id, schema, input } = first;
    this.#timer = setTimeout(() => this.#giveUp("it took too long"), this.#isReady ? CHECK_MS : START_MS);
    if (this.#isReady) this.#thread.postMessage({ id, schema, input } satisfies Asked);
  }

  #start(): Worker {
    const limits = { maxOldGenerationSizeMb: THREAD_MEMORY_MB };
    const thread = new Worker(this.#file, { env: {}, execArgv: [], resourceLimits: limits });
    thread.unref();
    thread.on("message", (said: Judged) => this.#hear(said));
    thread.on("error", (error: unknown) => {
      if (this.#thread === thread) this.#giveUp(error instanceof Error && "code" in error ? String(error.code) : "it broke");
    });
    return thread;
  }

  #hear(said: Judged): void {
    if (said.type === "ready") {
      this.#isReady = true;
      this.#next();
    } else if (this.#waiting[0]?.id === said.id) {
      this.#waiting.shift()?.tell(said.wrong);
      this.#next();
    }
  }

  /** Out of time, or of memory. G2 G4 */
  #giveUp(why: string): void {
    this.#log.warn({ why, isReady: this.#isReady }, "arguments.not_judged");
    const first = this.#waiting.shift();
    if (first !== undefined && this.#isReady && this.#spoilt.size < SPOILT_MAX) this.#spoilt.add(digestOf(first.schema));
    first?.tell(null);
    void this.#end();
    this.#next();
  }

  async #end(): Promise<void> {
    clearTimeout(this.#timer);
    const thread = this.#thread;
    this.#thread = null;
    this.#isReady = false;
    await thread?.terminate();
  }
}

const isSchema = (value: unknown): value is Schema => typeof value === "object" && value !== null && !Array.isArray(value);
const digestOf = (schema: Schema): string => createHash("sha256").update(JSON.stringify(schema)).digest("base64");
