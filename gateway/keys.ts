// The keys of an installation: made once, the same on every node, readable by their owner alone.
//
//   Y1  A key file is there whole or not at all, and the first one stays: nodes that start at once on one folder agree.
//   Y2  Files are 0600 and durable before anything is signed or checked with them; the folder is 0700.

import { generateKeyPairSync, hkdfSync, randomBytes } from "node:crypto";
import { type FileHandle, link, mkdir, open, readFile, stat, unlink } from "node:fs/promises";
import { join } from "node:path";
import { calculateJwkThumbprint } from "jose";
import { z } from "zod";
import { SettingError } from "./config.ts";

export const KEY_FILES = ["api.key", "hand.key", "grant.private.jwk", "grant.public.jwk"] as const;

const OTHERS = 0o077;
const STATE_KEY_BYTES = 32;

const PrivateJwk = z.object({ kty: z.literal("OKP"), crv: z.literal("Ed25519"), x: z.string().min(1), d: z.string().min(1), kid: z.string().min(1) });
const PublicJwk = PrivateJwk.omit({ d: true });

export interface Keys {
  readonly apiKey: string;
  /** What opens hand hosts to this installation's own programs. */
  readonly handKey: string;
  /** What the state that clients carry between two requests is sealed with; the same on every node. */
  readonly stateKey: Uint8Array;
  /** The folder that holds the files. */
  readonly dir: string;
  /** Key files that other users of this machine can read. */
  readonly loose: readonly string[];
}

/** Makes what is missing and reads what is there. `apiKey`: the operator's own, used as it is and not stored. Y1 Y2 */
export async function ensureKeys(dir: string, apiKey?: string): Promise<Keys> {
  await usable(dir, () => mkdir(dir, { recursive: true, mode: 0o700 }));
  const key = apiKey ?? (await ensureLine(dir, "api.key", () => `mh_${randomBytes(32).toString("base64url")}`));
  const handKey = await ensureLine(dir, "hand.key", () => randomBytes(32).toString("base64url"));
  const signing = await ensureJwk(dir, "grant.private.jwk", PrivateJwk, makeSigningKey);
  const { d: secret, ...open } = signing;
  const checking = await ensureJwk(dir, "grant.public.jwk", PublicJwk, async () => open);
  if (checking.kid !== signing.kid || checking.x !== signing.x)
    throw new SettingError(
      `grant.public.jwk in MANYHANDS_KEYS_DIR (${dir}) does not belong to grant.private.jwk. Remove the public one to have it made anew.`,
    );
  // Of a secret that no client has: a key of its own would be one more file to share.
  const stateKey = new Uint8Array(hkdfSync("sha256", Buffer.from(secret, "base64url"), "", "manyhands request state", STATE_KEY_BYTES));
  return { apiKey: key, handKey, stateKey, dir, loose: await looseFiles(dir) };
}

async function makeSigningKey(): Promise<z.infer<typeof PrivateJwk>> {
  const jwk = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  return PrivateJwk.parse({ ...jwk, kid: await calculateJwkThumbprint({ kty: "OKP", crv: "Ed25519", x: jwk.x ?? "" }) });
}

async function ensureLine(dir: string, name: string, make: () => string): Promise<string> {
  await createOnce(dir, name, async () => `${make()}\n`);
  return readLine(dir, name);
}

async function ensureJwk<T>(dir: string, name: string, schema: z.ZodType<T>, make: () => Promise<T>): Promise<T> {
  await createOnce(dir, name, async () => `${JSON.stringify(await make())}\n`);
  return parseJwk(dir, name, schema, await readKey(dir, name));
}

async function readLine(dir: string, name: string): Promise<string> {
  const line = (await readKey(dir, name)).trim();
  if (!/^[\x21-\x7e]{16,512}$/.test(line)) throw unusable(dir, name);
  return line;
}

function parseJwk<T>(dir: string, name: string, schema: z.ZodType<T>, text: string): T {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    // The parser's message would quote the key.
    throw unusable(dir, name);
  }
  const read = schema.safeParse(value);
  if (!read.success) throw unusable(dir, name);
  return read.data;
}

const unusable = (dir: string, name: string) =>
  new SettingError(`${name} in MANYHANDS_KEYS_DIR (${dir}) can't be used: it is empty, cut off or of another kind.`);

const readKey = (dir: string, name: string): Promise<string> => usable(dir, () => readFile(join(dir, name), "utf8"));

/** Puts the file there whole, by a link that fails if one is there already. Y1 Y2 */
async function createOnce(dir: string, name: string, make: () => Promise<string>): Promise<void> {
  const target = join(dir, name);
  if (await isThere(target)) return;
  const draft = join(dir, `.${name}.${process.pid}.${randomBytes(6).toString("hex")}`);
  const text = await make();
  await usable(dir, async () => {
    await durably(await open(draft, "wx", 0o600), (file) => file.writeFile(text));
    try {
      await link(draft, target);
    } catch (error) {
      if (codeOf(error) !== "EEXIST") throw error;
    } finally {
      await unlink(draft);
    }
    await durably(await open(dir, "r"), async () => {});
  });
}

async function durably(file: FileHandle, write: (file: FileHandle) => Promise<void>): Promise<void> {
  try {
    await write(file);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function looseFiles(dir: string): Promise<readonly string[]> {
  if (process.platform === "win32") return [];
  const loose: string[] = [];
  for (const name of KEY_FILES) {
    const path = join(dir, name);
    if ((await isThere(path)) && ((await stat(path)).mode & OTHERS) !== 0) loose.push(name);
  }
  return loose;
}

async function isThere(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return false;
    throw error;
  }
}

async function usable<T>(dir: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    const code = codeOf(error);
    if (code === undefined) throw error;
    throw new SettingError(`The keys in MANYHANDS_KEYS_DIR (${dir}) can't be read or written: ${code}.`, { cause: error });
  }
}

const codeOf = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
