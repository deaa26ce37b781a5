// Who serves which model: the operator's file of providers, first match wins, and the one of the environment for all that it does not name.
//
//   {"providers": [{"name": "vertex", "models": ["claude-*@*"], "style": "vertex", "base_url": "https://…", "auth": "bearer", "key_file": "vertex.token"}],
//    "prices": [{"models": ["claude-opus-*"], "input": 5, "output": 25, "cache_read": 0.5, "cache_write": 6.25}],
//    "session_limit_usd": 20}
//
//   P1  The file holds no key: each provider names a file that does, which may be replaced while we run.
//   P2  A key goes to its own provider's origin only.
//   P3  Prices are dollars for a million tokens. With a limit, a model without a price is refused: what is not counted can't be limited.

import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { z } from "zod";
import { keyFile, type ModelKeys } from "../model-key.ts";

const PROVIDERS_MAX = 50;
const FILE_BYTES_MAX = 1024 * 1024;

const pattern = z
  .string()
  .min(1)
  .max(256)
  .regex(/^[\x21-\x7e]+$/);
const price = z.number().min(0).max(1_000_000);
const ProviderEntry = z.strictObject({
  name: z.string().regex(/^[a-z0-9][a-z0-9_-]{0,62}$/),
  models: z.array(pattern).min(1).max(200),
  /** What is spoken there: the Messages API, or what Google's and Amazon's platforms make of it. */
  style: z.enum(["messages", "vertex", "bedrock"]).default("messages"),
  base_url: z
    .url({ protocol: /^https?$/ })
    .refine((text) => new URL(text).username === "" && new URL(text).password === "" && new URL(text).search === ""),
  auth: z.enum(["x-api-key", "bearer"]).default("x-api-key"),
  key_file: z.string().min(1),
  /** Names of models there, where they differ. */
  rename: z.record(z.string(), z.string().min(1).max(256)).default({}),
});
const File = z.strictObject({
  providers: z.array(ProviderEntry).max(PROVIDERS_MAX),
  prices: z
    .array(z.strictObject({ models: z.array(pattern).min(1), input: price, output: price, cache_read: price, cache_write: price }))
    .default([]),
  session_limit_usd: z.number().positive().optional(),
});

export type Style = z.infer<typeof ProviderEntry>["style"];

export interface Provider {
  readonly name: string;
  readonly style: Style;
  readonly url: URL;
  readonly auth: "x-api-key" | "bearer";
  readonly keys: ModelKeys;
  /** What the model is called there. */
  nameOf(model: string): string;
}

export interface Price {
  readonly input: number;
  readonly output: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
}

export interface Models {
  /** The provider of a model; the last one takes all. */
  providerOf(model: string): Provider;
  readonly all: readonly Provider[];
  priceOf(model: string): Price | null;
  /** Dollars a session may spend by the prices here; null: no limit. */
  readonly limit: number | null;
  /** There is one provider, and nothing to count against: no request needs to be read. */
  readonly isPlain: boolean;
}

/** Without a file: one provider for all models. */
export const plainModels = (provider: Provider): Models => ({
  providerOf: () => provider,
  all: [provider],
  priceOf: () => null,
  limit: null,
  isPlain: true,
});

/** The provider of the environment. */
export const ownProvider = (url: URL, keys: ModelKeys): Provider => ({
  name: "default",
  style: "messages",
  url,
  auth: "x-api-key",
  keys,
  nameOf: (model) => model,
});

/** Throws an error whose message is one line for the operator and repeats nothing of the file. P1 */
export function readModels(path: string, own: Provider, warn: (file: string, reason: string) => void): Models {
  const { providers, prices, session_limit_usd } = parse(path);
  const folder = dirname(path);
  const named = providers.map(({ name, models, style, base_url, auth, key_file, rename }) => {
    const file = resolve(folder, key_file);
    const provider: Provider = {
      name,
      style,
      url: new URL(base_url),
      auth,
      keys: keyFile(file, (reason) => warn(file, reason)),
      nameOf: (model) => (Object.hasOwn(rename, model) ? (rename[model] ?? model) : model),
    };
    return { matches: matcher(models), provider };
  });
  const priced = prices.map(({ models, input, output, cache_read, cache_write }) => ({
    matches: matcher(models),
    price: { input, output, cacheRead: cache_read, cacheWrite: cache_write },
  }));
  return {
    providerOf: (model) => named.find(({ matches }) => matches(model))?.provider ?? own,
    all: [...named.map(({ provider }) => provider), own],
    priceOf: (model) => priced.find(({ matches }) => matches(model))?.price ?? null,
    limit: session_limit_usd ?? null,
    isPlain: false,
  };
}

function parse(path: string): z.infer<typeof File> {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw new Error(`MANYHANDS_MODELS_FILE: ${path}: it can't be read`, { cause: error });
  }
  if (text.length > FILE_BYTES_MAX) throw new Error(`MANYHANDS_MODELS_FILE: ${path}: it is too long`);
  let given: unknown;
  try {
    given = JSON.parse(text);
  } catch {
    throw new Error(`MANYHANDS_MODELS_FILE: ${path}: it is not JSON`);
  }
  const read = File.safeParse(given);
  if (!read.success) throw new Error(`MANYHANDS_MODELS_FILE: ${path}: ${read.error.issues[0]?.path.join(".") || "the file"} is not valid`);
  const names = read.data.providers.map(({ name }) => name);
  if (new Set(names).size < names.length) throw new Error(`MANYHANDS_MODELS_FILE: ${path}: two providers have one name`);
  return read.data;
}

/** A `*` stands for any characters. */
function matcher(patterns: readonly string[]): (model: string) => boolean {
  const parts = patterns.map((each) => each.split("*"));
  return (model) => parts.some((pieces) => fits(model, pieces));
}

function fits(model: string, pieces: readonly string[]): boolean {
  const [first = "", ...rest] = pieces;
  const last = rest.pop();
  if (last === undefined) return model === first;
  if (!model.startsWith(first) || model.length < first.length + last.length || !model.endsWith(last)) return false;
  let at = first.length;
  for (const piece of rest) {
    const found = model.indexOf(piece, at);
    if (found < 0) return false;
    at = found + piece.length;
  }
  return at <= model.length - last.length;
}
