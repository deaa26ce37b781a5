// glob and grep in threads of their own: a pattern can run for ever, and a thread can be ended.
//
//   H1  One call, one thread at a time; an ended call takes its thread with it and nobody else's work. At most THREADS_MAX; more calls wait.

import { Worker } from "node:worker_threads";
import type { Answer } from "../../tools/answer.ts";

const THREADS_MAX = 4;
const THREAD_MEMORY_MB = 256;

export interface Search {
  readonly tool: "glob" | "grep";
  readonly input: unknown;
}

export type SearchAnswer = { readonly answer: Answer } | { readonly broke: string };

interface Job {
  readonly search: Search;
  readonly resolve: (answer: SearchAnswer | null) => void;
  thread?: Thread;
}

interface Thread {
  readonly worker: Worker;
  /** Hears what the thread answers, or that it is gone. */
  hear: (answer: SearchAnswer, isAlive: boolean) => void;
}

export class Searches {
  readonly #file = new URL("./search-thread.js", import.meta.url);
  #idle: Thread[] = [];
  readonly #jobs = new Map<number, Job>();

  /** Null: it was ended. */
  run(n: number, search: Search): Promise<SearchAnswer | null> {
    return new Promise((resolve) => {
      this.#jobs.set(n, { search, resolve });
      this.#advance();
    });
  }

  /** Nothing happens where no such search is under way. */
  async end(n: number): Promise<void> {
    const job = this.#jobs.get(n);
    if (job === undefined) return;
    this.#jobs.delete(n);
    await job.thread?.worker.terminate();
    job.resolve(null);
    this.#advance();
  }

  /** H1 */
  #advance(): void {
    const jobs = [...this.#jobs];
    const free = THREADS_MAX - jobs.filter(([, { thread }]) => thread !== undefined).length;
    for (const [n, job] of jobs.filter(([, { thread }]) => thread === undefined).slice(0, Math.max(0, free))) {
      const thread = this.#idle.pop() ?? this.#startThread();
      job.thread = thread;
      thread.hear = (answer, isAlive) => {
        thread.hear = () => {};
        if (this.#jobs.get(n) !== job) return;
        this.#jobs.delete(n);
        if (isAlive) this.#idle.push(thread);
        job.resolve(answer);
        this.#advance();
      };
      thread.worker.postMessage(job.search);
    }
  }

  #startThread(): Thread {
    const worker = new Worker(this.#file, { env: {}, resourceLimits: { maxOldGenerationSizeMb: THREAD_MEMORY_MB } });
    const thread: Thread = { worker, hear: () => {} };
    const gone = (broke: string): void => {
      this.#idle = this.#idle.filter((each) => each !== thread);
      thread.hear({ broke }, false);
    };
    worker.on("message", (answer: SearchAnswer) => thread.hear(answer, true));
    worker.on("error", (error: unknown) => gone(error instanceof Error ? error.message : "the search broke"));
    worker.on("exit", () => gone("the search ended unexpectedly"));
    return thread;
  }
}
