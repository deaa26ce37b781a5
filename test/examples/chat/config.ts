// The example's settings: environment variables that begin with CHAT_. They are read once; one that can't be used ends the program with one line.

import { readFileSync } from "node:fs";
import { z } from "zod";

const PORT_DEFAULT = 4180;
const EXIT_SETTING = 2;

const Settings = z.object({
  /** Where Manyhands is. */
  CHAT_URL: z.url().default("http://127.0.0.1:4100"),
  /** A file with its API key, and nothing else. */
  CHAT_KEY_FILE: z.string().min(1).default(".manyhands/keys/api.key"),
  CHAT_MODEL: z.string().min(1).default("claude-haiku-4-5"),
  /** The web page's port on the loopback address; 0: any free one. */
  CHAT_PORT: z.coerce.number().int().min(0).max(65_535).default(PORT_DEFAULT),
});

export interface Config {
  readonly url: string;
  readonly apiKey: string;
  readonly model: string;
  readonly port: number;
}

export function readConfig(): Config {
  const read = Settings.safeParse(process.env);
  if (!read.success) return stop(read.error.issues.map(({ path, message }) => `${path.join(".")}: ${message}`).join("; "));
  const { CHAT_URL: url, CHAT_KEY_FILE: file, CHAT_MODEL: model, CHAT_PORT: port } = read.data;
  return { url, apiKey: readKey(file), model, port };
}

function readKey(file: string): string {
  try {
    const key = readFileSync(file, "utf8").trim();
    return key === "" ? stop(`CHAT_KEY_FILE: ${file} is empty`) : key;
  } catch (error) {
    return stop(`CHAT_KEY_FILE: ${error instanceof Error ? error.message : String(error)}. Is Manyhands started ("npm start")?`);
  }
}

function stop(reason: string): never {
  process.stderr.write(`chat: ${reason}\n`);
  process.exit(EXIT_SETTING);
}
