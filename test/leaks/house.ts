// An installation that is looked into: every program of its own, a tap on every line between two of them, and everything that it says kept.
//
//   O1  `npm start` is started as a person does it, with the launcher; `apart` are the same programs one by one, over Redis, with the same cleaned
//       environments (gateway/roles.ts).
//   O2  The address that the house shows to clients is a tap's. Who brings secrets to the vaults' API uses `own`, which is not tapped.

import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ensureKeys } from "../../gateway/keys.ts";
import { environmentFor, type Role as ProgramRole } from "../../gateway/roles.ts";
import { freePort, type RedisServer, startRedis } from "../chaos/redis-server.ts";
import { removeAll } from "../support/docker.ts";
import { type Program, ROOT, startNode, startProgram } from "../support/process.ts";
import { ENGINE_SOCKET } from "../support/real-part.ts";
import { until } from "../support/until.ts";
import type { Canaries } from "./canaries.ts";
import type { Outside } from "./outside.ts";
import { Tap } from "./wire.ts";

export type Kind = "npm start" | "apart";
type Role = ProgramRole | "launcher";

const START_MS = 60_000;
/** As little as a crash may cost; a call that is under way is renewed many times in it. */
const LEASE_MS = 3_000;
export const SNAPSHOT_SIGNAL = "SIGUSR2";

type Settings = Readonly<Record<string, string>>;
/** Where each program finds the others: behind taps. */
type Urls = Readonly<Partial<Record<ProgramRole, Settings>>>;

interface Running {
  readonly role: Role;
  readonly pid: number;
}

export class House {
  readonly kind: Kind;
  readonly folder: string;
  readonly apiKey: string;
  readonly taps: readonly Tap[];
  readonly redisPort: number | null;
  readonly own: string;
  readonly #env: Settings;
  readonly #urls: Urls;
  readonly #programs = new Map<Role, Program>();
  readonly programs: Program[] = [];
  readonly #redis: RedisServer | null;

  private constructor(
    made: Pick<House, "kind" | "folder" | "apiKey" | "taps" | "own" | "redisPort"> & { env: Settings; urls: Urls; redis: RedisServer | null },
  ) {
    this.kind = made.kind;
    this.folder = made.folder;
    this.apiKey = made.apiKey;
    this.taps = made.taps;
    this.own = made.own;
    this.redisPort = made.redisPort;
    this.#env = made.env;
    this.#urls = made.urls;
    this.#redis = made.redis;
  }

  /** Everything up. `folder` is the house's own and empty. */
  static async open(kind: Kind, folder: string, outside: Outside, canaries: Canaries): Promise<House> {
    const data = join(folder, "data");
    const [tmp, given, snapshots, redisDir] = ["tmp", "given", "snapshots", "redis"].map((name) => join(folder, name)) as [
      string,
      string,
      string,
      string,
    ];
    for (const made of [data, tmp, given, snapshots, redisDir]) await mkdir(made, { recursive: true });
    await writeFile(join(given, "model.key"), `${canaries.of("model key")}\n`, { mode: 0o600 });
    await writeFile(join(given, "outside.pem"), outside.authority.certificate);
    const { apiKey } = await ensureKeys(join(data, "keys"));
    const [port, vaultPort, handsPort, redisPort] = [await freePort(), await freePort(), await freePort(), await freePort()];
    const redis = kind === "apart" ? await startRedis({ dir: redisDir, port: redisPort, appendfsync: "always" }) : null;
    const hostOf = (url: string) => new URL(url).host;
    const taps: Tap[] = [
      await Tap.open({ name: "client and gateway", target: port }),
      await Tap.open({ name: "hand host and engine", target: ENGINE_SOCKET, path: join(folder, "engine.sock") }),
    ];
    const tap = async (name: string, target: number, mayBringSecrets = false): Promise<string> => {
      const made = await Tap.open({ name, target, mayBringSecrets });
      taps.push(made);
      return made.url;
    };
    const hands = kind === "apart" ? await tap("gateway or worker and hand host", handsPort) : "";
    const store = kind === "apart" ? (await tap("gateway or worker and Redis", redisPort)).replace("http:", "redis:") : "";
    const urls: Urls =
      kind === "apart"
        ? {
            gateway: { MANYHANDS_VAULT_URL: await tap("gateway and vault proxy", vaultPort, true), MANYHANDS_HANDS_URL: hands, REDIS_URL: store },
            worker: { MANYHANDS_VAULT_URL: await tap("worker and vault proxy", vaultPort), MANYHANDS_HANDS_URL: hands, REDIS_URL: store },
            hands: { MANYHANDS_VAULT_URL: await tap("hand host and vault proxy", vaultPort) },
          }
        : {};
    const env = {
      PATH: process.env.PATH ?? "",
      HOME: tmp,
      NODE_ENV: "test",
      TMPDIR: tmp,
      MANYHANDS_LOG_LEVEL: "trace",
      MANYHANDS_DATA_DIR: data,
      MANYHANDS_KEYS_DIR: join(data, "keys"),
      MANYHANDS_PORT: String(port),
      MANYHANDS_VAULT_PORT: String(vaultPort),
      MANYHANDS_HANDS_PORT: String(handsPort),
      MANYHANDS_LEASE_MS: String(LEASE_MS),
      MANYHANDS_SANDBOX: "docker",
      DOCKER_HOST: `unix://${join(folder, "engine.sock")}`,
      MANYHANDS_MODEL_KEY_FILE: join(given, "model.key"),
      ANTHROPIC_BASE_URL: outside.modelUrl,
      NODE_EXTRA_CA_CERTS: join(given, "outside.pem"),
      MANYHANDS_GIT_HOSTS: outside.git.url,
      MANYHANDS_INTERNAL_HOSTS: "127.0.0.1,localhost",
      MANYHANDS_MCP_INTERNAL_HOSTS: "*",
      MANYHANDS_EGRESS_INTERNAL_HOSTS: `${hostOf(outside.hostUrl)},${hostOf(outside.secureUrl)}`,
    };
    const own = `http://127.0.0.1:${port}`;
    const house = new House({ kind, folder, apiKey, taps, own, env, urls, redis, redisPort: redis === null ? null : redisPort });
    try {
      if (kind === "npm start") await house.#launch();
      else {
        await Promise.all((["vault-proxy", "hands"] as const).map((role) => house.start(role)));
        await Promise.all((["gateway", "worker"] as const).map((role) => house.start(role)));
      }
      return house;
    } catch (error) {
      await house.close();
      throw error;
    }
  }

  /** What clients are told. O2 */
  get url(): string {
    return this.taps[0]?.url ?? "";
  }

  get data(): string {
    return join(this.folder, "data");
  }

  /** Node's, for a program that writes its heap down when it is told to: its strings in full. */
  get snapshotFlags(): readonly string[] {
    return [
      `--heapsnapshot-signal=${SNAPSHOT_SIGNAL}`,
      "--heap-snapshot-string-limit=100000000",
      `--diagnostic-dir=${join(this.folder, "snapshots")}`,
    ];
  }

  /** The programs that run now. */
  get running(): readonly Running[] {
    if (this.kind === "apart") return [...this.#programs].map(([role, { pid }]) => ({ role, pid }));
    const launcher = this.#programs.get("launcher");
    if (launcher === undefined) return [];
    const started = new Map(launcher.linesOf("child.started").map(({ child, pid }) => [String(child), Number(pid)]));
    return [{ role: "launcher", pid: launcher.pid }, ...[...started].map(([role, pid]) => ({ role: role as Role, pid }))];
  }

  /** kill -9 of a program, and it again: by the launcher, where there is one. */
  async restart(role: ProgramRole): Promise<void> {
    const launcher = this.#programs.get("launcher");
    if (launcher === undefined) {
      const program = this.#programs.get(role);
      program?.kill("SIGKILL");
      await program?.exit();
      return await this.start(role);
    }
    const listened = () => launcher.linesOf("process.listening", { role }).length;
    const before = listened();
    const pid = this.running.find((each) => each.role === role)?.pid;
    if (pid === undefined) throw new Error(`no ${role} runs`);
    process.kill(pid, "SIGKILL");
    await until(() => listened() > before, { timeoutMs: START_MS, what: `${role} listens again` });
  }

  /** As the launcher starts it, with one more setting: the gateway writes a heap snapshot when it is told to. */
  async start(role: ProgramRole): Promise<void> {
    const env = { MANYHANDS_SANDBOX: "", ...environmentFor(role, this.#env, { ...this.#urls[role], MANYHANDS_PARENT_PIPE: "1" }) };
    const flags = role === "gateway" ? this.snapshotFlags : [];
    const program = startNode([...flags, join(ROOT, "dist/gateway/cli.js"), role], { env, cwd: this.folder });
    this.#programs.set(role, program);
    this.programs.push(program);
    await program.logged("process.listening", { timeoutMs: START_MS });
  }

  /** A command of an operator's. */
  command(...args: string[]): Program {
    const program = startProgram("gateway/cli", { args, env: this.#env, cwd: this.folder });
    this.programs.push(program);
    return program;
  }

  async close(): Promise<void> {
    const hosts = this.programs.flatMap((program) => program.linesOf("process.listening", { role: "hands" }).map(({ id }) => String(id)));
    for (const program of this.programs) program.kill("SIGTERM");
    for (const program of this.programs) await program[Symbol.asyncDispose]();
    await this.#redis?.kill();
    for (const host of new Set(hosts)) await removeAll(host);
    for (const tap of this.taps) await tap.close();
  }

  async #launch(): Promise<void> {
    const program = startProgram("gateway/cli", { args: ["start"], env: this.#env, cwd: this.folder });
    this.#programs.set("launcher", program);
    this.programs.push(program);
    await program.logged("launcher.ready", { timeoutMs: START_MS });
  }
}
