// Configuration of the gateway, the node and the launcher: the environment, read once, checked whole and frozen.
//
//   C1  A name that begins with MANYHANDS_ and is no setting of this project stops the start; so does a value that is not allowed.
//   C2  What is said about a bad setting names it and what it takes, and never repeats its value: it may be a secret.
//   C3  A credential of someone else is not in here: of the model's key this knows only whether there is one.

import { isIPv4 } from "node:net";
import { join, resolve } from "node:path";
import { z } from "zod";
import { KNOWN_SETTINGS, unknownSettings } from "../session-store/settings.ts";
import { CONNECT_MS, IDLE_MS, TOTAL_MS } from "./relay/limits.ts";
import type { Times } from "./relay/upstream.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

/** A setting that can't be used. Its message is one line for the operator; programs stop with `EXIT_CONFIGURATION`. */
export class SettingError extends Error {
  override readonly name = "SettingError";
}

/** The exit code that tells the launcher that starting again would not help. */
export const EXIT_CONFIGURATION = 2;

const DEFAULT_PORT = "4100";
/** A name with more wrong letters is no misspelling of a setting. */
const TYPOS_MAX = 3;

const whole = (least: number, most: number) =>
  z
    .string()
    .regex(/^\d{1,9}$/)
    .transform(Number)
    .pipe(z.number().min(least).max(most));
const port = (absent: string) => whole(0, 65_535).prefault(absent).describe("a port number from 0 (any free one) to 65535");
const webAddress = () =>
  z
    .url({ protocol: /^https?$/ })
    .optional()
    .describe("an http:// or https:// address");
const path = () => z.string().max(4096);

const Settings = z.strictObject({
  MANYHANDS_PORT: port(DEFAULT_PORT),
  MANYHANDS_HOST: z
    .string()
    .regex(/^[0-9A-Za-z.:-]{1,253}$/)
    .default("127.0.0.1")
    .describe("an address or name of this machine to listen on"),
  MANYHANDS_DATA_DIR: path().default(".manyhands").describe("a folder"),
  MANYHANDS_KEYS_DIR: path().optional().describe("a folder"),
  MANYHANDS_API_KEY: z
    .string()
    .regex(/^[\x21-\x7e]{16,512}$/)
    .optional()
    .describe("16 to 512 printable characters without spaces"),
  MANYHANDS_SANDBOX: z.enum(["auto", "virtual", "docker"]).default("auto").describe('"auto", "virtual" or "docker"'),
  MANYHANDS_MODEL_KEY_FILE: path().optional().describe("a file that holds the model's API key"),
  MANYHANDS_MODELS_FILE: path().optional().describe("a file of model providers, prices and a limit"),
  MANYHANDS_LEASE_MS: whole(100, 3_600_000).prefault("15000").describe("milliseconds from 100 to 3600000"),
  MANYHANDS_SESSIONS_MAX: whole(1, 10_000).prefault("64").describe("a number from 1 to 10000"),
  MANYHANDS_KEEP_ALIVE_MS: whole(100, 60_000).prefault("15000").describe("milliseconds from 100 to 60000"),
  MANYHANDS_PUBLIC_URL: webAddress(),
  MANYHANDS_MCP_ISSUER: webAddress(),
  MANYHANDS_MCP_JWKS_URL: webAddress(),
  MANYHANDS_MCP_OPEN: z.enum(["0", "1"]).default("0").describe('"1" to take MCP calls without a key, on a loopback address only, or "0"'),
  MANYHANDS_MCP_INTERNAL_HOSTS: z
    .string()
    .regex(/^[0-9A-Za-z._:*,[\]\s-]*$/)
    .default("")
    .describe('hosts, or "host:port", with commas between them, or "*"'),
  MANYHANDS_MCP_CONNECT_TIMEOUT_MS: whole(10, 600_000).prefault(String(CONNECT_MS)).describe("milliseconds from 10 to 600000"),
  MANYHANDS_MCP_IDLE_TIMEOUT_MS: whole(10, 86_400_000).prefault(String(IDLE_MS)).describe("milliseconds from 10 to 86400000"),
  MANYHANDS_MCP_TOTAL_TIMEOUT_MS: whole(10, 86_400_000).prefault(String(TOTAL_MS)).describe("milliseconds from 10 to 86400000"),
  MANYHANDS_HAND_CHECK_MS: whole(0, 86_400_000).prefault("300000").describe("milliseconds up to 86400000, or 0 for never"),
  MANYHANDS_VAULT_PORT: port("0"),
  MANYHANDS_HANDS_PORT: port("0"),
  MANYHANDS_VAULT_URL: webAddress(),
  MANYHANDS_HANDS_URL: webAddress(),
  MANYHANDS_PARENT_PIPE: z.enum(["0", "1"]).default("0").describe('"1" to exit when standard input closes, or "0"'),
  MANYHANDS_LOG_LEVEL: z
    .enum(["trace", "debug", "info", "warn", "error", "fatal"])
    .optional()
    .describe('one of "trace", "debug", "info", "warn", "error", "fatal"'),
  MANYHANDS_FAULT_POINT: z
    .string()
    .regex(/^[a-z-]+(:\d+)?$/)
    .optional()
    .describe("the name of a fault point, and only under NODE_ENV=test"),
  REDIS_URL: z
    .url({ protocol: /^rediss?$/ })
    .optional()
    .describe("a redis:// or rediss:// address"),
  ANTHROPIC_BASE_URL: webAddress(),
  ANTHROPIC_API_KEY: z.string().optional().describe("the model's API key"),
  NODE_ENV: z.string().optional().describe("a word"),
});

export interface Config {
  readonly port: number;
  readonly host: string;
  /** Absolute. */
  readonly dataDir: string;
  /** Absolute; shared by all nodes of an installation. */
  readonly keysDir: string;
  /** Absent: the one in the keys folder. */
  readonly apiKey?: string;
  readonly sandbox: "auto" | "virtual" | "docker";
  /** Absent: the embedded store, and the worker in the gateway's process. */
  readonly redisUrl?: string;
  /** C3 */
  readonly hasModelKey: boolean;
  readonly modelKeyFile?: string;
  readonly hasOwnModelAddress: boolean;
  readonly leaseMs: number;
  /** How many sessions a worker drives at a time. */
  readonly sessionsMax: number;
  /** How often a silent stream says that it is there. */
  readonly keepAliveMs: number;
  /** Where this installation is reached from outside, without a slash at its end. */
  readonly publicUrl?: string;
  /** The authorization server whose tokens the MCP door takes. */
  readonly mcpIssuer?: { readonly issuer: string; readonly jwksUrl: string };
  /** MCP calls are taken without a key. */
  readonly isMcpOpen: boolean;
  /** How hands are reached by their own doors. */
  readonly hands: {
    readonly internalHosts: readonly string[];
    readonly times: Times;
    /** How often registered hands are looked at by themselves; 0: never. */
    readonly checkMs: number;
  };
  readonly vaultPort: number;
  readonly handsPort: number;
  readonly vaultUrl?: string;
  readonly handsUrl?: string;
  readonly parentPipe: boolean;
  readonly logLevel: string;
  /** The operator asked for this level, so a terminal shows the log too. */
  readonly isLogLevelGiven: boolean;
  readonly faultPoint?: string;
}

/** Reads the settings; a bad one is a `SettingError`. C1 C2 */
export function readConfig(env: Environment = process.env): Config {
  refuseUnknown(env);
  const mine: Record<string, string> = {};
  for (const name of Object.keys(Settings.shape)) {
    const value = env[name];
    if (value !== undefined && value !== "") mine[name] = value;
  }
  const read = Settings.safeParse(mine);
  if (!read.success) throw new SettingError(describeIssue(read.error.issues[0]?.path[0]));
  const settings = read.data;
  if (settings.MANYHANDS_FAULT_POINT !== undefined && settings.NODE_ENV !== "test") throw new SettingError(describeIssue("MANYHANDS_FAULT_POINT"));

  refuseHalfIssuer(settings);
  if (settings.MANYHANDS_MCP_OPEN === "1" && !isLoopback(settings.MANYHANDS_HOST))
    throw new SettingError("MANYHANDS_MCP_OPEN takes calls without a key: that is for a loopback MANYHANDS_HOST only.");

  const dataDir = resolve(settings.MANYHANDS_DATA_DIR);
  return Object.freeze({
    port: settings.MANYHANDS_PORT,
    host: settings.MANYHANDS_HOST,
    dataDir,
    keysDir: settings.MANYHANDS_KEYS_DIR === undefined ? join(dataDir, "keys") : resolve(settings.MANYHANDS_KEYS_DIR),
    ...given("apiKey", settings.MANYHANDS_API_KEY),
    sandbox: settings.MANYHANDS_SANDBOX,
    ...given("redisUrl", settings.REDIS_URL),
    ...given("modelKeyFile", settings.MANYHANDS_MODEL_KEY_FILE),
    hasModelKey:
      settings.MANYHANDS_MODEL_KEY_FILE !== undefined || settings.MANYHANDS_MODELS_FILE !== undefined || settings.ANTHROPIC_API_KEY !== undefined,
    hasOwnModelAddress: settings.ANTHROPIC_BASE_URL !== undefined,
    leaseMs: settings.MANYHANDS_LEASE_MS,
    sessionsMax: settings.MANYHANDS_SESSIONS_MAX,
    keepAliveMs: settings.MANYHANDS_KEEP_ALIVE_MS,
    ...given("publicUrl", settings.MANYHANDS_PUBLIC_URL?.replace(/\/+$/, "")),
    ...given("mcpIssuer", issuerOf(settings)),
    isMcpOpen: settings.MANYHANDS_MCP_OPEN === "1",
    hands: {
      internalHosts: settings.MANYHANDS_MCP_INTERNAL_HOSTS.split(/[\s,]+/).filter(Boolean),
      times: {
        connectMs: settings.MANYHANDS_MCP_CONNECT_TIMEOUT_MS,
        idleMs: settings.MANYHANDS_MCP_IDLE_TIMEOUT_MS,
        totalMs: settings.MANYHANDS_MCP_TOTAL_TIMEOUT_MS,
      },
      checkMs: settings.MANYHANDS_HAND_CHECK_MS,
    },
    vaultPort: settings.MANYHANDS_VAULT_PORT,
    handsPort: settings.MANYHANDS_HANDS_PORT,
    ...given("vaultUrl", settings.MANYHANDS_VAULT_URL?.replace(/\/+$/, "")),
    ...given("handsUrl", settings.MANYHANDS_HANDS_URL?.replace(/\/+$/, "")),
    parentPipe: settings.MANYHANDS_PARENT_PIPE === "1",
    logLevel: settings.MANYHANDS_LOG_LEVEL ?? "info",
    isLogLevelGiven: settings.MANYHANDS_LOG_LEVEL !== undefined,
    ...given("faultPoint", settings.MANYHANDS_FAULT_POINT),
  });
}

type IssuerSettings = Pick<z.infer<typeof Settings>, "MANYHANDS_PUBLIC_URL" | "MANYHANDS_MCP_ISSUER" | "MANYHANDS_MCP_JWKS_URL">;

/** Byte for byte as given: an issuer is compared as a string. */
function issuerOf({ MANYHANDS_MCP_ISSUER: issuer, MANYHANDS_MCP_JWKS_URL: jwksUrl }: IssuerSettings) {
  return issuer === undefined || jwksUrl === undefined ? undefined : { issuer, jwksUrl };
}

/** A token is bound to the URL that it is for: without one there is nothing to compare with. */
function refuseHalfIssuer(settings: IssuerSettings): void {
  const { MANYHANDS_MCP_ISSUER: issuer, MANYHANDS_MCP_JWKS_URL: jwksUrl, MANYHANDS_PUBLIC_URL: publicUrl } = settings;
  if ((issuer === undefined) !== (jwksUrl === undefined)) throw new SettingError("MANYHANDS_MCP_ISSUER and MANYHANDS_MCP_JWKS_URL go together.");
  if (issuer !== undefined && publicUrl === undefined)
    throw new SettingError("MANYHANDS_MCP_ISSUER needs MANYHANDS_PUBLIC_URL: tokens are bound to it.");
}

/** A name that only begins like a loopback address may lead anywhere. */
export const isLoopback = (host: string): boolean => host === "localhost" || host === "::1" || (isIPv4(host) && host.startsWith("127."));

function given<Name extends string, Value>(name: Name, value: Value | undefined): { readonly [key in Name]?: Value } {
  return value === undefined ? {} : ({ [name]: value } as { readonly [key in Name]: Value });
}

function refuseUnknown(env: Environment): void {
  const [name] = unknownSettings(env);
  if (name === undefined) return;
  const meant = nearest(name, KNOWN_SETTINGS);
  throw new SettingError(`${name} is not a setting of Manyhands. ${meant === null ? "README.md lists them." : `Did you mean ${meant}?`}`);
}

function describeIssue(name: PropertyKey | undefined): string {
  const found = Object.entries(Settings.shape).find(([each]) => each === name);
  if (!found) return "The settings are not valid.";
  return `${found[0]} is not valid. It takes ${found[1].description ?? "another value"}.`;
}

/** The setting that was probably meant; null when none is close. */
function nearest(name: string, known: readonly string[]): string | null {
  const ranked = known.map((each) => ({ each, distance: editDistance(name, each) })).sort((one, other) => one.distance - other.distance);
  const [first] = ranked.filter(({ each, distance }) => distance <= TYPOS_MAX || each.startsWith(`${name}_`));
  return first?.each ?? null;
}

/** Levenshtein's: insertions, deletions and changes between two names. */
function editDistance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      const changed = (row[j - 1] ?? 0) + (one[i - 1] === other[j - 1] ? 0 : 1);
      next.push(Math.min(changed, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}
