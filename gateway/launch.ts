// The launcher (`npm start`): makes the keys, starts the programs of one machine with cleaned environments, starts again what dies, and stops
// everything in order.
//
//   L4  Vault proxy and hand host listen before the gateway starts; if one of them does not within STANDBY_MS, the gateway starts without it.
//   L5  Ports are chosen once: a program that is started again is where it was.
//   L6  Stopping: gateway and worker first, then the hand host, then the vault proxy, all within STOP_MS; what is left is killed. Exit code 0. Whoever asks
//       again is not waited for, but one Ctrl-C comes more than once: from the terminal, and from npm.

import { createServer } from "node:net";
import { type Logger, pino } from "pino";
import { request } from "undici";
import { z } from "zod";
import { banner, standIns } from "./banner.ts";
import { Child, type ChildEvents, within } from "./child.ts";
import { type Config, type Environment, EXIT_CONFIGURATION, readConfig } from "./config.ts";
import { ensureKeys, type Keys } from "./keys.ts";
import { entryOf, environmentFor, type Role } from "./roles.ts";

const STANDBY_MS = 10_000;
const READY_MS = 60_000;
const READY_POLL_MS = 50;
const READY_ANSWER_MS = 2_000;
const STOP_MS = 4_700;
const ASKED_AGAIN_MS = 1_000;
/** What gateway and worker get of it: they have turns to hand over. */
const DRAIN_MS = 3_500;
/** What is kept of it for the vault proxy, which has nothing left to do by then. */
const LAST_MS = 500;
const WARN = 40;

const Line = z.object({ level: z.number().optional(), msg: z.string().optional(), role: z.string().optional(), sandbox: z.string().optional() });

/** Runs an installation until it is told to stop; resolves with the exit code. A bad setting rejects (`SettingError`). */
export async function launch(env: Environment = process.env): Promise<number> {
  const config = readConfig(env);
  // A person at a terminal is told by the banner; the log then says only what is wrong.
  const level = process.stdout.isTTY && !config.isLogLevelGiven ? "warn" : config.logLevel;
  const log = pino({ level, base: { role: "launcher" } }, process.stdout);
  const keys = await ensureKeys(config.keysDir, config.apiKey);
  return new Launcher(config, env, keys, log, await choosePorts(config)).run();
}

interface Ports {
  readonly gateway: number;
  readonly vault: number;
  readonly hands: number;
}

/** Whether a child has ever said that it listens. */
class Listening {
  isHeard = false;
  hear: () => void = () => {};
  readonly heard = new Promise<void>((resolve) => {
    this.hear = () => {
      this.isHeard = true;
      resolve();
    };
  });
}

class Launcher {
  readonly #config: Config;
  readonly #keys: Keys;
  readonly #log: Logger;
  readonly #url: string;
  readonly #isTerminal = process.stdout.isTTY === true;
  readonly #children: readonly Child[];
  readonly #listening: ReadonlyMap<Role, Listening>;
  #end: (code: number) => void = () => {};
  #code: number | null = null;
  /** As the hand host says. */
  #sandbox = "virtual";

  constructor(config: Config, env: Environment, keys: Keys, log: Logger, ports: Ports) {
    this.#config = config;
    this.#keys = keys;
    this.#log = log;
    this.#url = `http://${reachable(config.host)}:${ports.gateway}`;
    this.#listening = new Map(rolesOf(config).map((role) => [role, new Listening()]));
    const extra = settingsOfChildren(config, ports);
    this.#children = rolesOf(config).map(
      (role) => new Child({ role, entry: entryOf(role), env: environmentFor(role, env, extra), hear: this.#events() }),
    );
  }

  async run(): Promise<number> {
    const ended = new Promise<number>((resolve) => (this.#end = resolve));
    let askedAt: number | null = null;
    const stop = () => {
      if (this.#code === null) void this.#stop(0);
      else if (askedAt !== null && performance.now() - askedAt >= ASKED_AGAIN_MS) this.#killAll();
      askedAt ??= performance.now();
    };
    process.on("SIGTERM", stop);
    process.on("SIGINT", stop);
    // Nobody reads what we say any more: there is no one to serve.
    process.stdout.on("error", stop);
    try {
      this.#start().catch((error: unknown) => {
        this.#log.error({ err: error }, "launcher.failed");
        void this.#stop(1);
      });
      return await ended;
    } finally {
      process.off("SIGTERM", stop);
      process.off("SIGINT", stop);
      process.stdout.off("error", stop);
    }
  }

  async #start(): Promise<void> {
    if (this.#keys.loose.length > 0) this.#log.warn({ dir: this.#keys.dir, files: this.#keys.loose }, "keys.readable_by_others");
    const isBack = (child: Child) => child.role === "vault-proxy" || child.role === "hands";
    const back = this.#children.filter(isBack);
    for (const child of back) child.start();
    await within(Promise.all(back.map((child) => this.#listening.get(child.role)?.heard)), STANDBY_MS);
    if (this.#code !== null) return;
    for (const child of this.#children.filter((each) => !isBack(each))) child.start();
    if (!(await this.#untilReady())) return;
    const roles = this.#children.map((child) => child.role);
    if (this.#isTerminal) process.stdout.write(banner(this.#config, { url: this.#url, apiKey: this.#keys.apiKey, roles, sandbox: this.#sandbox }));
    else {
      for (const text of standIns(this.#config, this.#sandbox)) this.#log.warn({ what: text }, "standin.used");
      this.#log.info({ url: this.#url, roles, keysDir: this.#keys.dir }, "launcher.ready");
    }
  }

  /** True when every program listens and the gateway says that it is ready; false when the launcher is told to stop before. */
  async #untilReady(): Promise<boolean> {
    const everyone = Promise.all([...this.#listening.values()].map(({ heard }) => heard));
    let complaintAt = performance.now() + READY_MS;
    for (;;) {
      await within(everyone, READY_MS);
      if (this.#code !== null) return false;
      const silent = [...this.#listening].filter(([, { isHeard }]) => !isHeard).map(([role]) => role);
      if (silent.length === 0 && (await answersReady(this.#url))) return this.#code === null;
      if (performance.now() >= complaintAt) {
        this.#log.error({ url: this.#url, silent, ms: READY_MS }, "launcher.not_ready");
        complaintAt = performance.now() + READY_MS;
      }
      await new Promise((resolve) => setTimeout(resolve, READY_POLL_MS));
    }
  }

  #events(): ChildEvents {
    return {
      started: (role, pid) => this.#log.info({ child: role, pid }, "child.started"),
      said: (role, line) => {
        const read = readLine(line);
        if (read?.msg === "process.listening") this.#listening.get(role)?.hear();
        if (role === "hands" && read?.sandbox !== undefined) this.#sandbox = read.sandbox;
        if (!this.#isTerminal || this.#config.isLogLevelGiven || (read?.level ?? WARN) >= WARN) process.stdout.write(`${line}\n`);
      },
      died: (role, code, signal, againMs) => {
        if (this.#code !== null) return;
        this.#log[code === EXIT_CONFIGURATION ? "error" : "warn"]({ child: role, code, signal, againMs }, "child.died");
        if (code === EXIT_CONFIGURATION) void this.#stop(EXIT_CONFIGURATION);
      },
    };
  }

  /** L6 */
  async #stop(code: number): Promise<void> {
    if (this.#code !== null) return;
    this.#code = code;
    this.#log.info({ code }, "launcher.stopping");
    const deadline = performance.now() + STOP_MS;
    const left = () => Math.max(0, deadline - performance.now());
    const of = (...roles: Role[]) => this.#children.filter((child) => roles.includes(child.role));
    await Promise.all(of("gateway", "worker").map((child) => child.stop(DRAIN_MS)));
    await Promise.all(of("hands").map((child) => child.stop(left() - LAST_MS)));
    await Promise.all(of("vault-proxy").map((child) => child.stop(left())));
    this.#killAll();
    this.#log.info({ code }, "launcher.stopped");
    this.#end(code);
  }

  #killAll(): void {
    for (const child of this.#children) if (child.isRunning && child.kill()) this.#log.warn({ child: child.role }, "child.killed");
  }
}

/** Which programs this machine runs: one that is reached at a given address elsewhere is not started here. */
function rolesOf(config: Config): readonly Role[] {
  const roles: Role[] = [];
  if (config.vaultUrl === undefined) roles.push("vault-proxy");
  if (config.handsUrl === undefined) roles.push("hands");
  roles.push("gateway");
  if (config.redisUrl !== undefined) roles.push("worker");
  return roles;
}

function settingsOfChildren(config: Config, ports: Ports): Readonly<Record<string, string>> {
  return {
    MANYHANDS_DATA_DIR: config.dataDir,
    MANYHANDS_KEYS_DIR: config.keysDir,
    MANYHANDS_PORT: String(ports.gateway),
    MANYHANDS_VAULT_PORT: String(ports.vault),
    MANYHANDS_HANDS_PORT: String(ports.hands),
    MANYHANDS_VAULT_URL: config.vaultUrl ?? `http://127.0.0.1:${ports.vault}`,
    MANYHANDS_HANDS_URL: config.handsUrl ?? `http://127.0.0.1:${ports.hands}`,
    MANYHANDS_GATEWAY_URL: `http://${reachable(config.host)}:${ports.gateway}`,
    MANYHANDS_PARENT_PIPE: "1",
  };
}

/** L5 */
async function choosePorts(config: Config): Promise<Ports> {
  const taken = new Set<number>();
  const choose = async (wanted: number, host: string): Promise<number> => {
    let port = wanted;
    while (port === 0 || taken.has(port)) port = await freePort(host);
    taken.add(port);
    return port;
  };
  return {
    gateway: await choose(config.port, config.host),
    vault: await choose(config.vaultPort, "127.0.0.1"),
    hands: await choose(config.handsPort, "127.0.0.1"),
  };
}

function freePort(host: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, host, () => {
      const address = server.address();
      server.close(() => (typeof address === "object" && address ? resolve(address.port) : reject(new Error("no port was given"))));
    });
  });
}

async function answersReady(url: string): Promise<boolean> {
  try {
    const answer = await request(`${url}/readyz`, { headersTimeout: READY_ANSWER_MS, bodyTimeout: READY_ANSWER_MS });
    await answer.body.dump();
    return answer.statusCode === 200;
  } catch {
    // Not listening yet: asked again until the deadline.
    return false;
  }
}

/** Where this machine reaches a server that listens on `host`. */
export function reachable(host: string): string {
  if (host === "0.0.0.0" || host === "::") return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}

function readLine(line: string): z.infer<typeof Line> | null {
  try {
    return Line.safeParse(JSON.parse(line)).data ?? null;
  } catch {
    // A line that is no JSON is passed on as it is.
    return null;
  }
}
