// The hand host's settings: read once from the environment, checked and frozen.

import { join, resolve } from "node:path";
import { z } from "zod";
import { unknownSettings } from "../session-store/settings.ts";

const port = z.coerce.number().int().min(0).max(65_535);

const Settings = z.strictObject({
  port: port.default(0),
  host: z.string().min(1).default("127.0.0.1"),
  dataDir: z.string().min(1).default(".manyhands"),
  keysDir: z.string().min(1).optional(),
  sandbox: z.enum(["auto", "virtual", "docker"]).default("auto"),
  parentPipe: z.enum(["0", "1"]).default("0"),
  logLevel: z.enum(["fatal", "error", "warn", "info", "debug", "trace", "silent"]).default("info"),
});

const NAMES = {
  port: "MANYHANDS_HANDS_PORT",
  host: "MANYHANDS_HOST",
  dataDir: "MANYHANDS_DATA_DIR",
  keysDir: "MANYHANDS_KEYS_DIR",
  sandbox: "MANYHANDS_SANDBOX",
  parentPipe: "MANYHANDS_PARENT_PIPE",
  logLevel: "MANYHANDS_LOG_LEVEL",
} as const satisfies Record<keyof z.infer<typeof Settings>, string>;

export interface Config {
  readonly port: number;
  readonly host: string;
  /** The hand host's own folder inside the data folder. */
  readonly dataDir: string;
  readonly keysDir: string;
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
  if (settings.sandbox === "docker") throw new ConfigError(`${NAMES.sandbox}: docker sandboxes are not available; use auto or virtual`);
  const dataDir = resolve(settings.dataDir);
  return Object.freeze({
    port: settings.port,
    host: settings.host,
    dataDir: join(dataDir, "hands"),
    keysDir: settings.keysDir === undefined ? join(dataDir, "keys") : resolve(settings.keysDir),
    hasParentPipe: settings.parentPipe === "1",
    logLevel: settings.logLevel,
  });
}

function nameOf(field: PropertyKey | undefined): string {
  return Object.entries(NAMES).find(([key]) => key === field)?.[1] ?? String(field);
}
