// Starting programs of ours as real processes from dist/, and reading the JSON lines that they log.

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { until } from "./until.ts";

export type LogLine = Readonly<Record<string, unknown>>;

const START_MS = 30_000;
const EXIT_MS = 15_000;
const LINES_MAX = 100_000;

/** The folder of package.json, seen from source or from dist/. */
export const ROOT = findRoot(dirname(fileURLToPath(import.meta.url)));

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

export interface ProgramOptions {
  readonly args?: readonly string[];
  /**
   * Added to PATH, HOME, NODE_ENV=test and the virtual sandbox, so that a test means the same with and without a container engine; nothing else of
   * this process's environment is passed on.
   */
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

export class Program {
  readonly lines: LogLine[] = [];
  readonly #child: ChildProcess;
  readonly #exited: Promise<Exit>;
  #exit: Exit | null = null;
  #stdout = "";
  #stderr = "";

  constructor(child: ChildProcess) {
    this.#child = child;
    this.#exited = new Promise((resolve) => {
      const end = (code: number | null, signal: NodeJS.Signals | null) => {
        this.#exit ??= { code, signal };
        resolve(this.#exit);
      };
      child.once("close", end);
      child.once("error", () => end(null, null));
    });
    if (child.stdout) createInterface({ input: child.stdout }).on("line", (line) => this.#hear(line));
    child.stderr?.on("data", (chunk: Buffer) => (this.#stderr = (this.#stderr + chunk.toString()).slice(-LINES_MAX)));
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error("The program did not start.");
    return this.#child.pid;
  }

  /** What it wrote on standard output that was no JSON. */
  get stdout(): string {
    return this.#stdout;
  }

  get stderr(): string {
    return this.#stderr;
  }

  get hasExited(): boolean {
    return this.#exit !== null;
  }

  /** Every line with this message, and with these fields. */
  linesOf(msg: string, fields: LogLine = {}): readonly LogLine[] {
    return this.lines.filter((line) => line.msg === msg && Object.entries(fields).every(([name, value]) => line[name] === value));
  }

  /** Waits for the first line with this message; `after` of them are passed over. */
  logged(
    msg: string,
    { fields = {}, after = 0, timeoutMs = START_MS }: { fields?: LogLine; after?: number; timeoutMs?: number } = {},
  ): Promise<LogLine> {
    return until(
      () => {
        const found = this.linesOf(msg, fields)[after];
        if (!found && this.hasExited) throw new Error(`The program ended before it logged ${msg}. ${this.#describe()}`);
        return found;
      },
      { timeoutMs, what: () => `a line ${msg} ${JSON.stringify(fields)}. ${this.#describe()}` },
    );
  }

  /** Waits until it (or its child of that role) listens; gives the address. */
  async listening(role?: string): Promise<string> {
    return String((await this.logged("process.listening", { fields: role === undefined ? {} : { role } })).url);
  }

  kill(signal: NodeJS.Signals = "SIGKILL"): void {
    this.#child.kill(signal);
  }

  /** One line on its standard input. */
  type(line: string): void {
    this.#child.stdin?.write(`${line}\n`);
  }

  /** All that its standard input ever brings. */
  feed(bytes: Buffer): void {
    this.#child.stdin?.end(bytes);
  }

  /** Closes its standard input: what happens when a launcher dies. */
  closePipe(): void {
    this.#child.stdin?.end();
  }

  async exit(timeoutMs = EXIT_MS): Promise<Exit> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error(`The program did not end within ${timeoutMs} ms. ${this.#describe()}`)), timeoutMs);
    });
    try {
      return await Promise.race([this.#exited, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Ends it whatever it does, and waits until it is gone. For `finally` and `afterEach`. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.hasExited) this.kill("SIGKILL");
    await this.exit();
  }

  #hear(line: string): void {
    const read = parse(line);
    if (read && this.lines.length < LINES_MAX) this.lines.push(read);
    else if (!read) this.#stdout = `${this.#stdout}${line}\n`.slice(-LINES_MAX);
  }

  #describe(): string {
    const said = this.lines.slice(-8).map((line) => JSON.stringify(line));
    return `Exit: ${JSON.stringify(this.#exit)}. Last lines:\n${said.join("\n")}\n${this.#stderr.slice(-2000)}`;
  }
}

/** Starts `dist/<entry>.js`, for example "gateway/cli". */
export function startProgram(entry: string, options: ProgramOptions = {}): Program {
  const path = join(ROOT, "dist", `${entry}.js`);
  if (!existsSync(path)) throw new Error(`dist/${entry}.js is not there: run "npm run build" first.`);
  return startNode([path, ...(options.args ?? [])], options);
}

/** Starts Node with these arguments: for programs that are not ours. */
export function startNode(args: readonly string[], options: ProgramOptions = {}): Program {
  const env = { PATH: process.env.PATH ?? "", HOME: process.env.HOME ?? "", NODE_ENV: "test", MANYHANDS_SANDBOX: "virtual", ...options.env };
  return new Program(spawn(process.execPath, args, { cwd: options.cwd ?? ROOT, env, stdio: ["pipe", "pipe", "pipe"] }));
}

/** Is there a process with this id? */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

function parse(line: string): LogLine | null {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? (value as LogLine) : null;
  } catch {
    return null;
  }
}

function findRoot(from: string): string {
  const root = [from, ...["..", "../..", "../../.."].map((up) => join(from, up))].find((folder) => existsSync(join(folder, "package.json")));
  if (root === undefined) throw new Error("package.json was not found above test/support.");
  return root;
}
