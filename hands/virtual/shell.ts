// bash, on just-bash: a shell in JavaScript over the sandbox's own files.
//
//   V1  Working directory and plain variables go from call to call; nothing else does, because the interpreter can't hand it over.
//   V2  A command returns when its foreground is done: what still runs behind `&` is ended then, and its output with it;
//       the output of jobs that came to their end is given.
//   V3  It is no security boundary: paths and links are kept inside the roots, but the interpreter is code of ours in a thread of ours.
//
// The interpreter runs a `&` statement in the foreground, to its end. So each one is rewritten to a command of ours that starts it beside the rest.

import { Bash, type CustomCommand, defineCommand, InMemoryFs, MountableFs, parse, type ScriptNode, serialize } from "just-bash";
import { DeviceFs, DiskFs } from "./disk.ts";
import type { Places } from "./places.ts";
import { WORKSPACE } from "./places.ts";
import type { ShellState } from "./protocol.ts";

const FILE_BYTES_MAX = 64 * 1024 * 1024;
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;
const VARIABLES_CHARS_MAX = 1_000_000;
const JOBS_MAX = 32;
/** How long ended jobs may take to say so. */
const JOB_END_MS = 500;

/** Loops end by the call's time-out, not by a count: the thread can be ended at any time. */
const LIMITS = {
  maxCommandCount: 1_000_000_000,
  maxLoopIterations: 1_000_000_000,
  maxWorkUnits: 1_000_000_000,
  maxOutputSize: OUTPUT_BYTES_MAX,
};

const START_JOB = "manyhands-start-job";
const WAIT_JOBS = "manyhands-wait-jobs";

export interface Ran {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number;
  readonly shell: ShellState;
  /** Variables were too large to be carried on. */
  readonly isForgetful: boolean;
}

export class Shell {
  readonly #fs: MountableFs;

  constructor(places: Places) {
    const base = new InMemoryFs();
    // No /bin: while it is absent every command is found by its name, and nothing has to be put there.
    for (const folder of ["/etc", "/home/user"]) base.mkdirSync(folder, { recursive: true });
    const mounts = places.mounts.map(({ mountPoint, root }) => ({
      mountPoint,
      filesystem: new DiskFs({ root, maxFileReadSize: FILE_BYTES_MAX, maxCopySize: FILE_BYTES_MAX }),
    }));
    this.#fs = new MountableFs({ base, mounts: [...mounts, { mountPoint: "/dev", filesystem: new DeviceFs() }] });
  }

  async run(command: string, shell: ShellState | null): Promise<Ran> {
    const jobs = new Jobs((script, start, signal) => this.#exec(script, start, jobs, signal));
    const start = shell ?? { cwd: WORKSPACE, variables: FRESH };
    const cwd = (await this.#fs.exists(start.cwd)) ? start.cwd : WORKSPACE;
    const done = await this.#exec(rewriteJobs(command), { ...start, cwd }, jobs);
    const printed = await jobs.end();
    const variables = carried(done.env);
    const isForgetful = JSON.stringify(variables).length > VARIABLES_CHARS_MAX;
    const next = { cwd: done.env.PWD ?? cwd, variables: isForgetful ? start.variables : variables };
    return { stdout: done.stdout + printed.stdout, stderr: done.stderr + printed.stderr, exitCode: done.exitCode, shell: next, isForgetful };
  }

  #exec(script: string, start: ShellState, jobs: Jobs, signal?: AbortSignal) {
    const bash = new Bash({ fs: this.#fs, cwd: start.cwd, executionLimits: LIMITS, customCommands: jobs.commands });
    const env = { ...start.variables, PWD: start.cwd };
    return bash.exec(script, { env, cwd: start.cwd, replaceEnv: true, rawScript: true, ...(signal === undefined ? {} : { signal }) });
  }
}

const FRESH: Readonly<Record<string, string>> = {
  HOME: WORKSPACE,
  PATH: "/usr/bin:/bin",
  IFS: " \t\n",
  USER: "user",
  TMPDIR: "/tmp",
  LANG: "C.UTF-8",
};

/** Not a script's own: what the interpreter sets anew, and what would carry shell options on. */
const NOT_CARRIED = new Set([
  "PWD",
  "SHELLOPTS",
  "BASHOPTS",
  "OPTIND",
  "OPTARG",
  "_",
  "BASHPID",
  "PPID",
  "UID",
  "EUID",
  "RANDOM",
  "SECONDS",
  "LINENO",
]);

/** V1 */
function carried(env: Readonly<Record<string, string>>): Record<string, string> {
  const named = Object.entries(env).filter(([name]) => /^[A-Za-z_][A-Za-z0-9_]*$/.test(name) && !NOT_CARRIED.has(name));
  return Object.fromEntries(named);
}

type JobRun = (script: string, start: ShellState, signal: AbortSignal) => Promise<{ stdout: string; stderr: string }>;

/** What runs behind `&` in one command. V2 */
class Jobs {
  readonly commands: CustomCommand[];
  readonly #run: JobRun;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>[] = [];
  #stdout = "";
  #stderr = "";

  constructor(run: JobRun) {
    this.#run = run;
    const nothing = { stdout: "", stderr: "", exitCode: 0 };
    const start = defineCommand(START_JOB, async ([script = ""], context) => {
      if (this.#running.length >= JOBS_MAX) return { ...nothing, stderr: `bash: more than ${JOBS_MAX} background jobs\n`, exitCode: 1 };
      this.#running.push(this.#follow(script, { cwd: context.cwd, variables: carried(Object.fromEntries(context.env)) }));
      return nothing;
    });
    const wait = defineCommand(WAIT_JOBS, async () => {
      await Promise.all(this.#running);
      return nothing;
    });
    const through = ["nohup", "setsid"].map((name) =>
      defineCommand(name, async (args, context) => {
        const [command, ...rest] = args;
        if (command === undefined) return { ...nothing, stderr: `${name}: missing operand\n`, exitCode: 125 };
        return context.exec === undefined ? nothing : context.exec(command, { cwd: context.cwd, args: rest });
      }),
    );
    this.commands = [start, wait, ...through];
  }

  /** Ends what still runs; gives what the others printed. */
  async end(): Promise<{ stdout: string; stderr: string }> {
    this.#stop.abort();
    const late = new Promise<void>((resolve) => setTimeout(resolve, this.#running.length === 0 ? 0 : JOB_END_MS).unref());
    await Promise.race([Promise.all(this.#running), late]);
    return { stdout: this.#stdout, stderr: this.#stderr };
  }

  async #follow(script: string, start: ShellState): Promise<void> {
    const ran = await this.#run(script, start, this.#stop.signal);
    this.#stdout += ran.stdout;
    if (!this.#stop.signal.aborted) this.#stderr += ran.stderr;
  }
}

/** Each statement with `&` becomes a call of START_JOB with its text; `wait` becomes WAIT_JOBS. Scripts without `&` stay as they are. V2 */
function rewriteJobs(command: string): string {
  if (!command.includes("&")) return command;
  let script: ScriptNode;
  try {
    script = parse(command);
  } catch {
    return command; // The interpreter says what is wrong with it, in its own words.
  }
  const functions = script.statements.filter((statement) =>
    statement.pipelines.some((line) => line.commands.some(({ type }) => type === "FunctionDef")),
  );
  const prefix = functions.length === 0 ? "" : `${serialize({ ...script, statements: functions })}\n`;
  return rewriteNode(script, prefix) ? serialize(script) : command;
}

const word = (part: Record<string, unknown>) => ({ type: "Word", parts: [part] });

const call = (name: string, ...args: string[]) => ({
  type: "SimpleCommand",
  name: word({ type: "Literal", value: name }),
  args: args.map((value) => word({ type: "SingleQuoted", value })),
  assignments: [],
  redirections: [],
});

/** Changes a syntax tree in place; true when there was a background statement in it. */
function rewriteNode(node: unknown, prefix: string): boolean {
  if (Array.isArray(node)) return node.map((item) => rewriteNode(item, prefix)).includes(true);
  if (typeof node !== "object" || node === null) return false;
  if ("type" in node && node.type === "SimpleCommand" && isWait(node)) Object.assign(node, call(WAIT_JOBS));
  const isJob = "type" in node && node.type === "Statement" && "background" in node && node.background === true;
  if (!isJob) return rewriteNode(Object.values(node), prefix);
  const inner = { type: "Script", statements: [{ ...node, background: false }] } as ScriptNode;
  const script = prefix + rewriteJobs(serialize(inner));
  const pipeline = { type: "Pipeline", commands: [call(START_JOB, script)], negated: false, timed: false };
  Object.assign(node, { background: false, operators: [], pipelines: [pipeline], sourceText: undefined });
  return true;
}

function isWait(node: object): boolean {
  return "name" in node && JSON.stringify(node.name) === JSON.stringify(word({ type: "Literal", value: "wait" }));
}
