// An installation under a supervisor that kills: each program is a real process, started and killed by role, on ports that stay.
//
//   I1  What is killed here was started here; dispose kills everything that is left.
//   I2  A program is armed with a fault point at its start alone: started again, it is not.

import { mkdir, mkdtemp, readFile } from "node:fs/promises";
import { join } from "node:path";
import { ensureKeys } from "../../gateway/keys.ts";
import type { FaultPointName } from "../../session-store/fault-point.ts";
import { type Program, ROOT, startNode } from "../support/process.ts";
import { freePort, type RedisServer, startRedis } from "./redis-server.ts";

/** The programs of one machine; `node` is the gateway with worker and store inside. */
export type Role = "node" | "gateway" | "worker" | "hands" | "vault-proxy" | "redis";
export type StoreKind = "embedded" | "redis";

const START_MS = 90_000;
const COMMANDS = { node: "gateway", gateway: "gateway", worker: "worker", hands: "hands", "vault-proxy": "vault-proxy" } as const;

export interface InstallationOptions {
  readonly store: StoreKind;
  /** A folder of the test's own. */
  readonly work: string;
  readonly modelUrl: string;
  readonly leaseMs: number;
  readonly dist?: string;
  /** Where gateway and workers look for the hand host, given where it is: a relay, say. */
  readonly handsUrlFor?: (url: string) => Promise<string>;
  /** Settings of a test's own, for all programs; they win over the ones made here. */
  readonly env?: Readonly<Record<string, string>>;
}

export const rolesOf = (store: StoreKind): readonly Role[] =>
  store === "embedded" ? ["vault-proxy", "hands", "node"] : ["redis", "vault-proxy", "hands", "gateway", "worker"];

/** Where the fault points of a turn are reached. */
export const holderOf = (store: StoreKind, point: FaultPointName): "node" | "gateway" | "worker" => {
  if (store === "embedded") return "node";
  return point === "stored" ? "gateway" : "worker";
};

/** A frozen program does not notice that its parent's pipe closed. I1 */
const started = new Set<Program>();
process.once("exit", () => {
  for (const program of started) program.kill("SIGKILL");
});

/** Waits until a program listens; longer than one start takes, for machines that do much else. */
export async function isUp(program: Program): Promise<void> {
  await program.logged("process.listening", { timeoutMs: START_MS });
}

export class Installation {
  readonly store: StoreKind;
  readonly url: string;
  readonly apiKey: string;
  readonly dataDir: string;
  readonly #dist: string;
  readonly #env: Readonly<Record<string, string>>;
  readonly redisUrl: string;
  readonly vaultUrl: string;
  /** Where gateway and workers look for the hand host. */
  readonly handsUrl: string;
  readonly #redisPort: number;
  readonly #programs = new Map<Exclude<Role, "redis">, Program>();
  #redis: RedisServer | null = null;
  /** Programs that were started beside the ones of the installation, and those that died: their log lines are evidence. */
  readonly past: Program[] = [];

  private constructor(made: {
    options: InstallationOptions;
    apiKey: string;
    dataDir: string;
    env: Readonly<Record<string, string>>;
    port: number;
    redisPort: number;
  }) {
    this.store = made.options.store;
    this.url = `http://127.0.0.1:${made.port}`;
    this.apiKey = made.apiKey;
    this.dataDir = made.dataDir;
    this.#dist = made.options.dist ?? join(ROOT, "dist");
    this.#env = made.env;
    this.#redisPort = made.redisPort;
    this.vaultUrl = made.env.MANYHANDS_VAULT_URL ?? "";
    this.handsUrl = made.env.MANYHANDS_HANDS_URL ?? "";
    this.redisUrl = `redis://127.0.0.1:${made.redisPort}`;
  }

  /** Makes folders, keys and ports; nothing runs yet. */
  static async make(options: InstallationOptions): Promise<Installation> {
    const dataDir = await mkdtemp(join(options.work, `${options.store}-`));
    const keysDir = join(dataDir, "keys");
    const { apiKey } = await ensureKeys(keysDir);
    await mkdir(join(dataDir, "redis"), { recursive: true });
    const [port, vaultPort, handsPort, redisPort] = [await freePort(), await freePort(), await freePort(), await freePort()];
    const handsUrl = `http://127.0.0.1:${handsPort}`;
    const env = {
      MANYHANDS_DATA_DIR: dataDir,
      MANYHANDS_KEYS_DIR: keysDir,
      MANYHANDS_PARENT_PIPE: "1",
      MANYHANDS_LEASE_MS: String(options.leaseMs),
      MANYHANDS_PORT: String(port),
      MANYHANDS_VAULT_PORT: String(vaultPort),
      MANYHANDS_HANDS_PORT: String(handsPort),
      MANYHANDS_VAULT_URL: `http://127.0.0.1:${vaultPort}`,
      MANYHANDS_HANDS_URL: (await options.handsUrlFor?.(handsUrl)) ?? handsUrl,
      ANTHROPIC_BASE_URL: options.modelUrl,
      ANTHROPIC_API_KEY: "the-scripted-model-takes-any-key",
      ...(options.store === "redis" ? { REDIS_URL: `redis://127.0.0.1:${redisPort}` } : {}),
      ...options.env,
    };
    return new Installation({ options, apiKey, dataDir, env, port, redisPort });
  }

  /** Starts one program and waits until it is up; `fault` arms it. I2 */
  async start(role: Role, fault?: FaultPointName): Promise<void> {
    if (role === "redis") {
      this.#redis = await startRedis({ dir: join(this.dataDir, "redis"), port: this.#redisPort, appendfsync: "always" });
      return;
    }
    const program = this.startBeside(role, fault === undefined ? {} : { MANYHANDS_FAULT_POINT: fault });
    this.#programs.set(role, program);
    await isUp(program);
  }

  /** Starts one more program of a role, which only the caller knows: a second worker, say. */
  startBeside(role: Exclude<Role, "redis">, env: Readonly<Record<string, string>> = {}): Program {
    const program = startNode([join(this.#dist, "gateway", "cli.js"), COMMANDS[role]], {
      cwd: this.dataDir,
      env: { ...this.#settingsOf(role), ...env },
    });
    this.past.push(program);
    started.add(program);
    return program;
  }

  program(role: Exclude<Role, "redis">): Program {
    const program = this.#programs.get(role);
    if (!program) throw new Error(`The ${role} was not started.`);
    return program;
  }

  /** Starts what is not running: Redis first, the others at once. */
  async startMissing(): Promise<void> {
    if (this.store === "redis" && this.#redis === null) await this.start("redis");
    const missing = rolesOf(this.store).filter((role) => role !== "redis" && this.#programs.get(role)?.hasExited !== false);
    await Promise.all(missing.map((role) => this.start(role)));
  }

  hasReached(role: Exclude<Role, "redis">, point: FaultPointName): boolean {
    return this.program(role).linesOf("fault.reached", { point }).length > 0;
  }

  /** Waits until an armed program holds at its point. */
  async reached(role: Exclude<Role, "redis">, point: FaultPointName): Promise<void> {
    await this.program(role).logged("fault.reached", { fields: { point } });
  }

  /** Lets a program that holds at its fault point go on. */
  release(role: Exclude<Role, "redis">): void {
    this.program(role).kill("SIGUSR2");
  }

  /** kill -9, and waits until it is gone. I1 */
  async kill(role: Role): Promise<void> {
    if (role === "redis") {
      await this.#redis?.kill();
      this.#redis = null;
      return;
    }
    const program = this.program(role);
    program.kill("SIGKILL");
    await program.exit();
  }

  /** Ends one in good order. */
  async stop(role: Exclude<Role, "redis">): Promise<void> {
    const program = this.program(role);
    program.kill("SIGTERM");
    await program.exit();
  }

  async readData(...path: readonly string[]): Promise<string> {
    return readFile(join(this.dataDir, ...path), "utf8");
  }

  /** Every line that any program of this installation logged with this message. */
  linesOf(msg: string): readonly Readonly<Record<string, unknown>>[] {
    return this.past.flatMap((program) => program.linesOf(msg));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const program of this.past) await program[Symbol.asyncDispose]();
    await this.#redis?.kill();
  }

  /** The model's key is given to the vault proxy alone, as the launcher does. */
  #settingsOf(role: Exclude<Role, "redis">): Readonly<Record<string, string>> {
    return Object.fromEntries(Object.entries(this.#env).filter(([name]) => role === "vault-proxy" || !name.startsWith("ANTHROPIC_")));
  }
}
