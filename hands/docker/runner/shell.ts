// bash in a container: one process a command, with the directory and the variables of the one before.
//
//   N1  A command returns when its shell exits, whatever still runs behind it: that is ended then, detached or not, and what it printed is given.
//   N2  Time-out and cancel end the whole tree; directory and variables stay those from before the command.
//   N3  stdout and stderr are two pipes, real ones, so that /dev/stdout and /dev/stderr can be opened; the exit code is the shell's own.
//   N4  The next shell is started ahead of time and waits for its command: a call does not pay for its start.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync } from "node:fs";
import { Socket } from "node:net";
import { constants as system } from "node:os";
import type { Readable, Writable } from "node:stream";
import { type Answer, says } from "../../tools/answer.ts";
import { WORKSPACE } from "../../tools/places.ts";
import { Capture } from "./capture.ts";
import { IMAGE_ENVIRONMENT, PATH } from "./config.ts";
import { endEveryone, memoryKills } from "./everyone.ts";
import { outputText } from "./output.ts";
import { Pipes } from "./pipes.ts";

const OUTPUT_FOLDER = `${WORKSPACE}/.manyhands`;
const VARIABLES_BYTES_MAX = 1_000_000;
/** How long the rest of an output may take to be read once everyone is dead. */
const DRAIN_MS = 3_000;
const SCRIPT_FD = 3;
const STATE_FD = 4;

/**
 * Waits for three texts, each ended by a NUL: what it does at its exit, what sets up directory and variables, and the command. All on one line, so
 * that the line numbers in bash's messages are the command's own.
 */
const READ = `IFS= read -r -d '' -u ${SCRIPT_FD} REPLY`;
const BOOTSTRAP = `${READ}; eval "$REPLY"; ${READ}; eval "$REPLY"; ${READ}; exec ${SCRIPT_FD}<&-; trap __manyhands_keep EXIT; eval "$REPLY"`;

/** Every variable's name, asked for by its first letter: that starts no process, as asking for all at once would. */
const NAMES = [..."_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"].map((letter) => `"\${!${letter}@}"`).join(" ");

/** Tells what the next shell starts with: the directory, then name, attributes and value of each variable, then a full stop. */
const AT_EXIT = `
echo 500 2>/dev/null >/proc/self/oom_score_adj
__manyhands_keep() {
  { set +exuvnf; } 2>/dev/null
  trap - DEBUG ERR RETURN
  IFS=$' \\t\\n'
  {
    printf '%s\\0' "$PWD"
    for REPLY in ${NAMES}; do
      case $REPLY in
      BASH* | COMP_* | EPOCH* | DIRSTACK | EUID | FUNCNAME | GROUPS | HOSTNAME | HOSTTYPE | IFS | LINENO | MACHTYPE | OPTARG | OPTERR | OPTIND) ;;
      OSTYPE | PIPESTATUS | PPID | PS4 | PWD | RANDOM | REPLY | SECONDS | SHELLOPTS | SHLVL | SRANDOM | UID | _) ;;
      *) [[ -v $REPLY && \${!REPLY@a} != *[aAnr]* ]] && printf '%s\\0' "$REPLY" "\${!REPLY@a}" "\${!REPLY}" ;;
      esac
    done
    printf '.\\0'
  } >&${STATE_FD} 2>/dev/null
}
`;

interface Variable {
  readonly name: string;
  readonly isExported: boolean;
  /** Its bytes, as Latin-1. */
  readonly value: string;
}

interface ShellState {
  readonly directory: string;
  readonly variables: readonly Variable[];
}

interface Waiting {
  readonly process: ChildProcess;
  readonly stdout: Readable;
  readonly stderr: Readable;
  readonly script: Writable;
  readonly state: Readable;
}

export interface Command {
  readonly id: string;
  readonly text: string;
  readonly timeoutMs: number;
}

export class Shell {
  readonly #pipes = new Pipes();
  #state: ShellState = freshState();
  #next: Promise<Waiting> | undefined;
  #ending: "timeout" | "cancelled" | undefined;
  #isRunning = false;
  /** Until it is over nothing new is started: it would be ended as well. */
  #killing: Promise<boolean> | undefined;

  /** Null: it was cancelled. */
  async run(command: Command): Promise<Answer | null> {
    if (this.#isRunning) return says("Error: another command runs.", true);
    this.#isRunning = true;
    this.#ending = undefined;
    try {
      return await this.#run(command);
    } finally {
      this.#isRunning = false;
      this.prepare();
    }
  }

  /** Ends the command that runs. N2 */
  cancel(): void {
    if (this.#isRunning) this.#end("cancelled");
  }

  restart(): void {
    this.#state = freshState();
  }

  /** N4 */
  prepare(): void {
    this.#next ??= startShell(this.#pipes);
    // Whoever takes it hears of a failure; until then nobody does.
    this.#next.catch(() => {});
  }

  async #run({ id, text, timeoutMs }: Command): Promise<Answer | null> {
    if (text.includes("\0")) return says("Error: a command can't hold a NUL character.", true);
    let shell: Waiting;
    try {
      shell = await this.#take();
    } catch (error) {
      if (this.#ending === "cancelled") return null; // The shell was ended on its way up.
      throw error;
    }
    const stdout = new Capture(OUTPUT_FOLDER);
    const stderr = new Capture(OUTPUT_FOLDER);
    const said = new StateReader();
    const killsBefore = memoryKills();
    const timer = setTimeout(() => this.#end("timeout"), timeoutMs);
    try {
      shell.stdout.on("data", (chunk: Buffer) => stdout.add(chunk));
      shell.stderr.on("data", (chunk: Buffer) => stderr.add(chunk));
      shell.state.on("data", (chunk: Buffer) => said.add(chunk));
      const exited = exitOf(shell.process);
      await this.#killing;
      shell.script.end(Buffer.concat([Buffer.from(setUp(this.#state), "latin1"), Buffer.from(`\0${text.toWellFormed()}\0`)]));
      const { code, signal } = await exited;
      clearTimeout(timer);
      await this.#killing;
      const areGone = await endEveryone(); // N1
      if (!(await drained([shell.stdout, shell.stderr, shell.state]))) this.#pipes.discard();
      for (const capture of [stdout, stderr]) capture.end();
      if (this.#ending === "cancelled") return null;
      const next = this.#ending === undefined ? said.state() : null;
      if (next !== null && !said.isTooLarge) this.#state = next;
      const kills = memoryKills();
      const notes = [
        said.isTooLarge ? "[the variables are too large to be kept for the next call]" : "",
        areGone ? "" : "[some of its processes did not end at once]",
        kills !== null && killsBefore !== null && kills > killsBefore ? "[the sandbox's memory was used up, and a process was ended for it]" : "",
        this.#ending === undefined ? exitNote(code, signal) : "",
      ];
      const printed = outputText(id, { stdout, stderr }, notes, OUTPUT_FOLDER);
      if (this.#ending === undefined) return says(printed);
      return says(`Timed out after ${timeoutMs} ms. It and all that it had started were ended; files kept.\n${printed}`, true);
    } finally {
      clearTimeout(timer);
      for (const capture of [stdout, stderr]) capture.close();
      for (const stream of [shell.stdout, shell.stderr, shell.script, shell.state]) stream.destroy();
    }
  }

  async #take(): Promise<Waiting> {
    for (;;) {
      this.prepare();
      const next = this.#next;
      this.#next = undefined;
      const shell = next === undefined ? await startShell(this.#pipes) : await next;
      if (shell.process.exitCode === null && shell.process.signalCode === null) return shell;
    }
  }

  #end(why: "timeout" | "cancelled"): void {
    this.#ending ??= why;
    this.#killing ??= endEveryone().finally(() => {
      this.#killing = undefined;
    });
  }
}

function freshState(): ShellState {
  const fresh = { LANG: "C.UTF-8", ...IMAGE_ENVIRONMENT, PATH, HOME: WORKSPACE, USER: "user", TMPDIR: "/tmp" };
  return { directory: WORKSPACE, variables: Object.entries(fresh).map(([name, value]) => ({ name, value, isExported: true })) };
}

/** The directory first, because it sets a variable or two of its own. */
function setUp({ directory, variables }: ShellState): string {
  const go = `cd -- ${quoted(directory)} 2>/dev/null || cd ${WORKSPACE}`;
  return [go, ...variables.map(({ name, value, isExported }) => `${isExported ? "export " : ""}${name}=${quoted(value)}`)].join("\n");
}

const quoted = (value: string): string => `'${value.replaceAll("'", "'\\''")}'`;

function exitNote(code: number | null, signal: NodeJS.Signals | null): string {
  const number = code ?? 128 + (signal === null ? 0 : system.signals[signal]);
  return number === 0 ? "" : `exit code ${number}`;
}

/** What a shell tells at its exit. */
class StateReader {
  #chunks: Buffer[] = [];
  #bytes = 0;

  add(chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (!this.isTooLarge) this.#chunks.push(chunk);
  }

  get isTooLarge(): boolean {
    return this.#bytes > VARIABLES_BYTES_MAX;
  }

  /** Null: it did not come to its end, because the shell was replaced or killed. */
  state(): ShellState | null {
    const [directory, ...fields] = Buffer.concat(this.#chunks).toString("latin1").split("\0");
    if (directory === undefined || fields.at(-1) !== "" || fields.at(-2) !== ".") return null;
    const variables: Variable[] = [];
    for (let at = 0; at + 2 < fields.length - 2; at += 3) {
      const [name = "", attributes = "", value = ""] = fields.slice(at, at + 3);
      if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) variables.push({ name, value, isExported: attributes.includes("x") });
    }
    return { directory, variables };
  }
}

/** N3 N4 */
async function startShell(pipes: Pipes): Promise<Waiting> {
  const [out, err] = await pipes.open();
  try {
    const child = spawn("bash", ["--norc", "--noprofile", "-c", BOOTSTRAP, "bash"], {
      cwd: WORKSPACE,
      env: { PATH },
      stdio: ["ignore", out.write, err.write, "pipe", "pipe"],
    });
    await once(child, "spawn");
    const [script, state] = [child.stdio[SCRIPT_FD] as Socket, child.stdio[STATE_FD] as Socket];
    // A shell that is killed reads no script; nobody is to stumble over that.
    for (const stream of [script, state]) stream.on("error", () => {});
    script.write(`${AT_EXIT}\0`);
    return { process: child, stdout: readable(out.read), stderr: readable(err.read), script, state };
  } catch (error) {
    for (const { read } of [out, err]) closeSync(read);
    throw error;
  } finally {
    for (const { write } of [out, err]) closeSync(write);
  }
}

function readable(fd: number): Readable {
  const stream = new Socket({ fd, readable: true, writable: false });
  stream.on("error", () => {});
  return stream;
}

function exitOf(child: ChildProcess): Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }> {
  return new Promise((resolve) => child.once("exit", (code, signal) => resolve({ code, signal })));
}

/** Everything that was printed has been read; false: a writer can't be killed, and is not waited for. */
async function drained(streams: readonly Readable[]): Promise<boolean> {
  const ended = streams.map((stream) => (stream.closed ? undefined : new Promise<void>((resolve) => stream.once("close", () => resolve()))));
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(resolve, DRAIN_MS, false);
  });
  const areDrained = await Promise.race([Promise.all(ended).then(() => true), late]);
  clearTimeout(timer);
  return areDrained;
}
