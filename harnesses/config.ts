// The worker's settings: the environment, read once, checked and frozen.
//
//   C1  A name that begins with MANYHANDS_ and is nobody's setting stops the start; so does a value that is not allowed.
//   C2  What is said about a bad setting names it and what it takes, never its value.

import { join, resolve } from "node:path";
import { z } from "zod";
import { unknownSettings } from "../session-store/settings.ts";

/** A setting that can't be used. Its message is one line for the operator. */
export class SettingError extends Error {
  override readonly name = "SettingError";
}

const whole = (least: number, most: number) =>
  z
    .string()
    .regex(/^\d{1,9}$/)
    .transform(Number)
    .pipe(z.number().min(least).max(most));
const webAddress = () => z.url({ protocol: /^https?$/ }).describe("an http:// or https:// address");

const Settings = z.strictObject({
  REDIS_URL: z
    .url({ protocol: /^rediss?$/ })
    .describe("a redis:// or rediss:// address; over the embedded store it is the gateway that drives sessions"),
  MANYHANDS_DATA_DIR: z.string().max(4096).default(".manyhands").describe("a folder"),
  MANYHANDS_KEYS_DIR: z.string().max(4096).optional().describe("a folder"),
  MANYHANDS_VAULT_URL: webAddress(),
  MANYHANDS_HANDS_URL: webAddress(),
  MANYHANDS_GATEWAY_URL: webAddress().optional().describe("an http:// or https:// address"),
  MANYHANDS_LEASE_MS: whole(100, 3_600_000).prefault("15000").describe("milliseconds from 100 to 3600000"),
  MANYHANDS_SESSIONS_MAX: whole(1, 10_000).prefault("64").describe("a number from 1 to 10000"),
  MANYHANDS_PARENT_PIPE: z.enum(["0", "1"]).default("0").describe('"1" to exit when standard input closes, or "0"'),
  MANYHANDS_LOG_LEVEL: z
    .enum(["trace", "debug", "info", "warn", "error", "fatal", "silent"])
    .default("info")
    .describe('one of "trace", "debug", "info", "warn", "error", "fatal", "silent"'),
  MANYHANDS_FAULT_POINT: z
    .string()
    .regex(/^[a-z-]+(:\d+)?$/)
    .optional()
    .describe("the name of a fault point, and only under NODE_ENV=test"),
  NODE_ENV: z.string().optional().describe("a word"),
});

export interface Config {
  readonly redisUrl: string;
  readonly dataDir: string;
  readonly keysDir: string;
  readonly vaultUrl: string;
  readonly handsUrl: string;
  /** Where a harness's own process reaches its session's hands; absent: nowhere. */
  readonly gatewayUrl?: string;
  readonly leaseMs: number;
  /** How many sessions it drives at a time. */
  readonly sessionsMax: number;
  readonly hasParentPipe: boolean;
  readonly logLevel: string;
  readonly faultPoint?: string;
}

/** C1 C2 */
export function readConfig(env: Readonly<Record<string, string | undefined>> = process.env): Config {
  const [unknown] = unknownSettings(env);
  if (unknown !== undefined) throw new SettingError(`${unknown} is not a setting of Manyhands.`);
  const given = Object.keys(Settings.shape).flatMap((name) => (env[name] ? [[name, env[name]]] : []));
  const read = Settings.safeParse(Object.fromEntries(given));
  if (!read.success) throw new SettingError(describe(read.error.issues[0]?.path[0]));
  const settings = read.data;
  if (settings.MANYHANDS_FAULT_POINT !== undefined && settings.NODE_ENV !== "test") throw new SettingError(describe("MANYHANDS_FAULT_POINT"));
  const dataDir = resolve(settings.MANYHANDS_DATA_DIR);
  return Object.freeze({
    redisUrl: settings.REDIS_URL,
    dataDir,
    keysDir: settings.MANYHANDS_KEYS_DIR === undefined ? join(dataDir, "keys") : resolve(settings.MANYHANDS_KEYS_DIR),
    vaultUrl: settings.MANYHANDS_VAULT_URL.replace(/\/+$/, ""),
    handsUrl: settings.MANYHANDS_HANDS_URL,
    ...(settings.MANYHANDS_GATEWAY_URL === undefined ? {} : { gatewayUrl: settings.MANYHANDS_GATEWAY_URL.replace(/\/+$/, "") }),
    leaseMs: settings.MANYHANDS_LEASE_MS,
    sessionsMax: settings.MANYHANDS_SESSIONS_MAX,
    hasParentPipe: settings.MANYHANDS_PARENT_PIPE === "1",
    logLevel: settings.MANYHANDS_LOG_LEVEL,
    ...(settings.MANYHANDS_FAULT_POINT === undefined ? {} : { faultPoint: settings.MANYHANDS_FAULT_POINT }),
  });
}

function describe(name: PropertyKey | undefined): string {
  const found = Object.entries(Settings.shape).find(([each]) => each === name);
  return found ? `${found[0]} is missing or not valid. It takes ${found[1].description ?? "another value"}.` : "The settings are not valid.";
}
