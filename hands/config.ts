// The hand host's settings: read once from the environment, checked and frozen.

import { join, resolve } from "node:path";
import { z } from "zod";
import { unknownSettings } from "../session-store/settings.ts";
import type { Limits } from "./docker/container.ts";
import { type EngineAddress, parseAddress } from "./docker/engine.ts";
import type { ServerSettings } from "./servers/hands.ts";
import { CONNECT_MS, IDLE_MS, TOTAL_MS } from "./servers/limits.ts";

const port = z.coerce.number().int().min(0).max(65_535);
const whole = (min: number, max: number) => z.coerce.number().int().min(min).max(max);
const engine = z.string().transform((text, context): EngineAddress => {
  const address = parseAddress(text);
  if (address !== null) return address;
  context.addIssue({ code: "custom", message: "unix:///a/path or tcp://name:port of an engine on this machine" });
  return z.NEVER;
});

/** "host", "host:port" or "*", separated by commas. */
const hosts = z
  .string()
  .transform((text) =>
    text
      .split(",")
      .map((host) => host.trim())
      .filter((host) => host !== ""),
  )
  .refine(
    (names) => names.every((name) => /^(\*|[0-9A-Za-z._-]{1,253}(:\d{1,5})?|\[?[0-9a-fA-F:]+\]?)$/.test(name)),
    "hosts, or hosts and ports, separated by commas",
  );

const Settings = z.strictObject({
  port: port.default(0),
  host: z.string().min(1).default("127.0.0.1"),
  dataDir: z.string().min(1).default(".manyhands"),
  keysDir: z.string().min(1).optional(),
  sandbox: z.enum(["auto", "virtual", "docker"]).default("auto"),
  sandboxIdleMs: whole(1_000, 7 * 24 * 3_600_000).default(600_000),
  image: z
    .string()
    .regex(/^[a-z0-9][a-zA-Z0-9._/:@-]{0,254}$/, "the name of an image")
    .default("manyhands-hand"),
  memoryMb: whole(128, 1_048_576).default(1_024),
  pids: whole(32, 100_000).default(256),
  cpus: z.coerce.number().min(0.1).max(1_024).default(1),
  tmpMb: whole(1, 1_048_576).default(256),
  containersMax: whole(1, 1_000).default(32),
  vaultUrl: z
    .url({ protocol: /^https?$/ })
    .transform((text) => text.replace(/\/+$/, ""))
    .optional(),
  mcpInternalHosts: hosts.prefault(""),
  mcpServersFile: z.string().min(1).optional(),
  mcpConnectMs: whole(10, 600_000).default(CONNECT_MS),
  mcpIdleMs: whole(10, 86_400_000).default(IDLE_MS),
  mcpTotalMs: whole(10, 86_400_000).default(TOTAL_MS),
  engine: engine.prefault("unix:///var/run/docker.sock"),
  parentPipe: z.enum(["0", "1"]).default("0"),
  logLevel: z.enum(["fatal", "error", "warn", "info", "debug", "trace", "silent"]).default("info"),
});

const NAMES = {
  port: "MANYHANDS_HANDS_PORT",
  host: "MANYHANDS_HOST",
  dataDir: "MANYHANDS_DATA_DIR",
  keysDir: "MANYHANDS_KEYS_DIR",
  sandbox: "MANYHANDS_SANDBOX",
  sandboxIdleMs: "MANYHANDS_SANDBOX_IDLE_MS",
  image: "MANYHANDS_DOCKER_IMAGE",
  memoryMb: "MANYHANDS_DOCKER_MEMORY_MB",
  pids: "MANYHANDS_DOCKER_PIDS",
  cpus: "MANYHANDS_DOCKER_CPUS",
  tmpMb: "MANYHANDS_DOCKER_TMP_MB",
  containersMax: "MANYHANDS_DOCKER_CONTAINERS_MAX",
  vaultUrl: "MANYHANDS_VAULT_URL",
  mcpInternalHosts: "MANYHANDS_MCP_INTERNAL_HOSTS",
  mcpServersFile: "MANYHANDS_MCP_SERVERS_FILE",
  mcpConnectMs: "MANYHANDS_MCP_CONNECT_TIMEOUT_MS",
  mcpIdleMs: "MANYHANDS_MCP_IDLE_TIMEOUT_MS",
  mcpTotalMs: "MANYHANDS_MCP_TOTAL_TIMEOUT_MS",
  engine: "DOCKER_HOST",
  parentPipe: "MANYHANDS_PARENT_PIPE",
  logLevel: "MANYHANDS_LOG_LEVEL",
} as const satisfies Record<keyof z.infer<typeof Settings>, string>;

export interface Config {
  readonly port: number;
  readonly host: string;
  /** The hand host's own folder inside the data folder. */
  readonly dataDir: string;
  readonly keysDir: string;
  readonly sandbox: z.infer<typeof Settings>["sandbox"];
  /** How long (ms) a sandbox may do nothing before its processes are ended. */
  readonly sandboxIdleMs: number;
  readonly docker: {
    readonly engine: EngineAddress;
    readonly image: string;
    readonly limits: Limits;
    readonly containersMax: number;
    /** The vault proxy, through which sandboxes go out; null: none does. */
    readonly vaultUrl: string | null;
  };
  /** How the MCP servers of agents are reached. */
  readonly servers: Omit<ServerSettings, "configured">;
  /** Names the servers that are started here. */
  readonly serversFile: string | null;
  readonly hasParentPipe: boolean;
  readonly logLevel: z.infer<typeof Settings>["logLevel"];
}

/** A setting that can't be used: one line for the operator, exit code 2. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
}

export function readConfig(environment: Readonly<Record<string, string | undefined>> = process.env): Config {
  const unknown = unknownSettings(environment);
  if (unknown.length > 0) throw new ConfigError(`unknown settings: ${unknown.join(", ")}`);
  const given = Object.entries(NAMES).filter(([, name]) => (environment[name] ?? "") !== "");
  const read = Settings.safeParse(Object.fromEntries(given.map(([field, name]) => [field, environment[name]])));
  if (!read.success) {
    const says = read.error.issues.map((issue) => `${nameOf(issue.path[0])}: ${issue.message}`);
    throw new ConfigError(says.join("; "));
  }
  const settings = read.data;
  const dataDir = resolve(settings.dataDir);
  return Object.freeze({
    port: settings.port,
    host: settings.host,
    dataDir: join(dataDir, "hands"),
    keysDir: settings.keysDir === undefined ? join(dataDir, "keys") : resolve(settings.keysDir),
    sandbox: settings.sandbox,
    sandboxIdleMs: settings.sandboxIdleMs,
    docker: {
      engine: settings.engine,
      image: settings.image,
      limits: { memoryMb: settings.memoryMb, pids: settings.pids, cpus: settings.cpus, tmpMb: settings.tmpMb },
      containersMax: settings.containersMax,
      vaultUrl: settings.vaultUrl ?? null,
    },
    servers: {
      internalHosts: settings.mcpInternalHosts,
      vaultUrl: settings.vaultUrl ?? null,
      times: { connectMs: settings.mcpConnectMs, idleMs: settings.mcpIdleMs, totalMs: settings.mcpTotalMs },
      environment: childEnvironment(environment),
    },
    serversFile: settings.mcpServersFile === undefined ? null : resolve(settings.mcpServersFile),
    hasParentPipe: settings.parentPipe === "1",
    logLevel: settings.logLevel,
  });
}

function nameOf(field: PropertyKey | undefined): string {
  return Object.entries(NAMES).find(([key]) => key === field)?.[1] ?? String(field);
}

/** What a program needs to start at all; nothing of ours. */
function childEnvironment(environment: Readonly<Record<string, string | undefined>>): Readonly<Record<string, string>> {
  const names = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"];
  return Object.fromEntries(names.flatMap((name) => (environment[name] === undefined ? [] : [[name, environment[name]]])));
}
