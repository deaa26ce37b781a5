// A program that the launcher keeps alive: started, started again with back-off when it dies, stopped when asked.
//
//   L1  A child's standard input is a pipe from the launcher: when the launcher is gone, however it went, the pipe closes and the child exits.
//   L2  A child that dies is started again after 0.2 s, 0.4 s … 10 s; after 30 s of life the count begins anew.
//   L3  A child that says "configuration" (exit code 2) is not started again.

import { type ChildProcess, spawn } from "node:child_process";
import type { Readable } from "node:stream";
import { EXIT_CONFIGURATION } from "./config.ts";
import type { Role } from "./roles.ts";

export const BACKOFF_MIN_MS = 200;
export const BACKOFF_MAX_MS = 10_000;
const HEALTHY_MS = 30_000;
/** A longer line is passed on in pieces. */
const LINE_MAX = 1_048_576;

export interface ChildPlan {
  readonly role: Role;
  readonly entry: string;
  readonly env: Readonly<Record<string, string>>;
  readonly hear: ChildEvents;
}

export interface ChildEvents {
  started(role: Role, pid: number): void;
  /** One line of its standard output. */
  said(role: Role, line: string): void;
  /** It died and is started again in `againMs`; null: it is not. */
  died(role: Role, code: number | null, signal: NodeJS.Signals | null, againMs: number | null): void;
}

/** How long to wait before start number `failures` + 1 in a row. L2 */
export const backoffMs = (failures: number): number => Math.min(BACKOFF_MAX_MS, BACKOFF_MIN_MS * 2 ** Math.min(failures, 16));

export class Child {
  readonly role: Role;
  readonly #plan: ChildPlan;
  #process: ChildProcess | null = null;
  #gone: Promise<void> = Promise.resolve();
  #again: NodeJS.Timeout | null = null;
  #failures = 0;
  #isStopping = false;

  constructor(plan: ChildPlan) {
    this.role = plan.role;
    this.#plan = plan;
  }

  get isRunning(): boolean {
    return this.#process !== null;
  }

  start(): void {
    const { role, entry, env, hear } = this.#plan;
    const startedAt = performance.now();
    // A process group of its own: Ctrl-C on a terminal reaches the launcher alone, which stops its children in order.
    const child = spawn(process.execPath, [entry], { env, stdio: ["pipe", "pipe", "inherit"], detached: process.platform !== "win32" });
    this.#process = child;
    if (child.pid !== undefined) hear.started(role, child.pid);
    // The pipe is never written to (L1); an error on it means that the child is gone, which `exit` tells.
    child.stdin?.on("error", () => {});
    if (child.stdout) forward(child.stdout, (line) => hear.said(role, line));

    this.#gone = new Promise((resolve) => {
      const end = (code: number | null, signal: NodeJS.Signals | null) => {
        if (this.#process !== child) return;
        this.#process = null;
        this.#failures = performance.now() - startedAt >= HEALTHY_MS ? 0 : this.#failures;
        const againMs = this.#isStopping || code === EXIT_CONFIGURATION ? null : backoffMs(this.#failures++);
        if (againMs !== null) this.#again = setTimeout(() => this.start(), againMs);
        resolve();
        hear.died(role, code, signal, againMs);
      };
      child.once("exit", end);
      child.once("error", () => end(null, null));
    });
  }

  /** Asks it to end and waits until it has, or until `waitMs` have passed. It is not started again. */
  async stop(waitMs: number): Promise<void> {
    this.#isStopping = true;
    if (this.#again) clearTimeout(this.#again);
    this.#process?.kill("SIGTERM");
    await within(this.#gone, waitMs);
  }

  /** Ends it now. True when there was something to end. */
  kill(): boolean {
    this.#isStopping = true;
    if (this.#again) clearTimeout(this.#again);
    return this.#process?.kill("SIGKILL") ?? false;
  }
}

function forward(stdout: Readable, say: (line: string) => void): void {
  let rest = "";
  stdout.setEncoding("utf8").on("data", (chunk: string) => {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) say(line);
    if (rest.length < LINE_MAX) return;
    say(rest);
    rest = "";
  });
  stdout.on("end", () => {
    if (rest !== "") say(rest);
  });
}

/** Resolves when `done` does, or after `waitMs`. */
export async function within(done: Promise<unknown>, waitMs: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([done, new Promise((resolve) => (timer = setTimeout(resolve, waitMs)))]);
  clearTimeout(timer);
}
