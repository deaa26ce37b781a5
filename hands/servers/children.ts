// The processes of servers that are started here: none outlives its owner, however many wrappers stand between.
//
//   P1  A child is a process group of its own, and carries a mark in its environment which its own children inherit: host and hand.
//   P2  The end of a child is the end of its group and of everything that carries its mark, also of what has left the group.
//   P3  A host that was killed could end nothing: the next one with its ledger ends what carries the host's mark, before it starts anything.
//   P4  A child is given no environment of ours.
//   P5  What can't be started has ended: a machine without room for one more process, or for its pipes, is told of like every other end.
//
// Marks are read from /proc. Where there is none (not Linux), P2 ends the group alone, and P3 is the closing of the child's standard input.

import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { PassThrough, type Readable, type Writable } from "node:stream";

const MARK = "HAND_OWNER";
const GRACE_MS = 1_000;
const POLL_MS = 25;
export const NOT_STARTED = "it could not be started";

/** How a server is started; only the operator's own configuration says so. */
export interface Command {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string | null;
}

export interface Child {
  readonly pid: number;
  readonly stdin: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /** What it ended with, in words; also for one that could not be started. */
  readonly ended: Promise<string>;
  /** P2. Resolves when nothing of it is left, or nothing more can be done. */
  end(): Promise<void>;
}

export class Children {
  readonly #host: string;
  readonly #base: Readonly<Record<string, string>>;
  #started = 0;

  /** `host`: the hand host's id. `base`: what a program needs of an environment to start at all. P4 */
  constructor(host: string, base: Readonly<Record<string, string>>) {
    this.#host = host;
    this.#base = base;
  }

  start(hand: string, { command, args, env, cwd }: Command): Child {
    this.#started += 1;
    const mark = `${this.#host}/${hand}/${this.#started}/`;
    let made: ChildProcessWithoutNullStreams;
    try {
      made = spawn(command, [...args], {
        env: { ...this.#base, ...env, [MARK]: mark },
        ...(cwd === null ? {} : { cwd }),
        stdio: ["pipe", "pipe", "pipe"],
        detached: true,
      });
    } catch (error) {
      return notStarted(endedAtStart(error));
    }
    const ended = endOf(made);
    // Where there are no more file descriptors, there is a process without pipes, and its error comes by its own event.
    if (!hasPipes(made)) return notStarted(ended);
    let ending: Promise<void> | null = null;
    const child: Child = {
      pid: made.pid ?? 0,
      stdin: made.stdin,
      stdout: made.stdout,
      stderr: made.stderr,
      ended,
      end: () => {
        ending ??= this.#end(child, mark);
        return ending;
      },
    };
    return child;
  }

  /** P3. Gives how many processes were ended. */
  async sweep(): Promise<number> {
    return await endMarked(`${this.#host}/`);
  }

  async #end(child: Child, mark: string): Promise<void> {
    child.stdin.destroy();
    if (child.pid === 0) return;
    signalGroup(child.pid, "SIGTERM");
    const deadline = performance.now() + GRACE_MS;
    while (performance.now() < deadline && isGroupAlive(child.pid)) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    signalGroup(child.pid, "SIGKILL");
    await endMarked(mark);
  }
}

/** P5 */
function notStarted(ended: Promise<string> | string): Child {
  const closed = () => new PassThrough().on("error", () => {}).destroy();
  return { pid: 0, stdin: closed(), stdout: closed(), stderr: closed(), ended: Promise.resolve(ended), end: async () => {} };
}

const endedAtStart = (error: unknown): string =>
  `${NOT_STARTED}: ${error instanceof Error ? ("code" in error ? String(error.code) : error.name) : "unknown"}`;

/** What the types say of a process is not so for one that got no pipes. */
const hasPipes = (child: { readonly stdin: unknown; readonly stdout: unknown; readonly stderr: unknown }): boolean =>
  [child.stdin, child.stdout, child.stderr].every((pipe) => pipe !== undefined && pipe !== null);

function endOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(endedAtStart(error)));
    child.once("exit", (code, signal) => resolve(signal === null ? `it exited with code ${code ?? 0}` : `it was ended by ${signal}`));
  });
}

function signalGroup(group: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(-group, signal);
    return true;
  } catch {
    // Gone, or not ours any more: there is nothing to signal.
    return false;
  }
}

const isGroupAlive = (group: number): boolean => signalGroup(group, 0);

/** Kills what carries a mark that begins so, until a look finds nothing. */
async function endMarked(mark: string): Promise<number> {
  let ended = 0;
  for (let round = 0; round < 5; round += 1) {
    const found = await marked(mark);
    if (found.length === 0) return ended;
    for (const pid of found) {
      try {
        process.kill(pid, "SIGKILL");
        ended += 1;
      } catch {
        // It ended by itself meanwhile.
      }
    }
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  return ended;
}

async function marked(mark: string): Promise<readonly number[]> {
  const names = await readdir("/proc").catch(() => []);
  const wanted = `${MARK}=${mark}`;
  const found = await Promise.all(
    names
      .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
      .map(async (name) => {
        const text = await readFile(`/proc/${name}/environ`, "utf8").catch(() => "");
        return text.split("\0").some((line) => line.startsWith(wanted)) ? [Number(name)] : [];
      }),
  );
  return found.flat();
}
