// The master keys of a file vault, and where they come from: a file that only its owner reads, an environment variable, or a command's output.
//
//   K2  The text holds one or more keys, the current one first; the others only open what they once sealed. So a rotation is a key put in front.
//   K3  A key file that group or others can read is refused. The vault's own key file is made by the vault proxy itself, in its own folder, and only
//       while there is no record: a lost key is never papered over by a new one.
//   K4  No error quotes a key or a command's output.

import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { createFile, replaceFile } from "./durable.ts";

const KEY_BYTES = 32;
const TEXT_CHARS_MAX = 65_536;
const COMMAND_MS = 30_000;
const OTHERS = 0o077;

export interface MasterKey {
  /** Names a key without telling it. */
  readonly kid: string;
  readonly bytes: Buffer;
}

export type KeySource =
  /** `isOwn`: in the vault's own folder, made if it is absent. K3 */
  | { readonly type: "file"; readonly path: string; readonly isOwn: boolean }
  | { readonly type: "text"; readonly text: string; readonly name: string }
  | { readonly type: "command"; readonly command: string };

/** What stops the start: one line for the operator. */
export class VaultSettingError extends Error {
  override readonly name = "VaultSettingError";
}

export class Keyring {
  readonly current: MasterKey;
  readonly #keys: ReadonlyMap<string, Buffer>;

  constructor(keys: readonly MasterKey[]) {
    const [current] = keys;
    if (!current) throw new Error("a keyring holds a key");
    this.current = current;
    this.#keys = new Map(keys.map(({ kid, bytes }) => [kid, bytes]));
  }

  find(kid: string): Buffer | null {
    return this.#keys.get(kid) ?? null;
  }

  /** The same keys behind a new current one. */
  with(key: MasterKey): Keyring {
    return new Keyring([key, ...[...this.#keys].map(([kid, bytes]) => ({ kid, bytes }))]);
  }

  /** As a key file holds it. */
  text(): string {
    return `${[...this.#keys.values()].map((bytes) => bytes.toString("base64url")).join("\n")}\n`;
  }
}

export function makeKey(): MasterKey {
  return named(randomBytes(KEY_BYTES));
}

/** Reads the keys; makes the vault's own file if there is none and `isFresh`. K2 K3 K4 */
export async function readKeyring(source: KeySource, isFresh: boolean): Promise<Keyring> {
  switch (source.type) {
    case "text":
      return parse(source.text, source.name);
    case "command":
      return parse(await run(source.command), "the output of MANYHANDS_VAULT_KEY_COMMAND");
    case "file":
      return readKeyFile(source.path, source.isOwn && isFresh);
  }
}

/** Replaces a key file, whole or not at all. */
export const writeKeyFile = (path: string, keys: Keyring): Promise<void> => replaceFile(path, keys.text());

async function readKeyFile(path: string, mayMake: boolean): Promise<Keyring> {
  if (mayMake) await createFile(path, new Keyring([makeKey()]).text());
  let text: string;
  try {
    const { mode } = await stat(path);
    if (process.platform !== "win32" && (mode & OTHERS) !== 0)
      throw new VaultSettingError(`The vault's key file ${path} is readable by group or others. Make it 0600.`);
    text = await readFile(path, "utf8");
  } catch (error) {
    if (error instanceof VaultSettingError) throw error;
    throw new VaultSettingError(`The vault's key file ${path} can't be read (${codeOf(error)}). Without it what is in the vault can't be opened.`);
  }
  return parse(text, `the vault's key file ${path}`);
}

function parse(text: string, where: string): Keyring {
  const words = text.length > TEXT_CHARS_MAX ? [] : text.split(/\s+/).filter((word) => word !== "");
  const keys = words.map(decode);
  if (keys.length === 0 || keys.some((key) => key === null))
    throw new VaultSettingError(`A vault key is 32 bytes in base64 or hex, the current one first; ${where} holds something else.`);
  return new Keyring(keys.flatMap((key) => (key === null ? [] : [named(key)])));
}

function decode(word: string): Buffer | null {
  if (/^[0-9a-f]{64}$/i.test(word)) return Buffer.from(word, "hex");
  if (!/^[\w+/-]{43}=?$/.test(word)) return null;
  const bytes = Buffer.from(word, "base64");
  return bytes.length === KEY_BYTES ? bytes : null;
}

const named = (bytes: Buffer): MasterKey => ({
  kid: createHash("sha256").update("manyhands vault key\n").update(bytes).digest("hex").slice(0, 16),
  bytes,
});

function run(command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { timeout: COMMAND_MS, maxBuffer: TEXT_CHARS_MAX, killSignal: "SIGKILL" as const };
    const child = execFile("/bin/sh", ["-c", command], options, (error, stdout) => {
      // Neither the command's line nor its output is said: both may hold a secret.
      if (error) reject(new VaultSettingError(`MANYHANDS_VAULT_KEY_COMMAND failed (${error.killed ? "time-out" : (error.code ?? "signal")}).`));
      else resolve(stdout);
    });
    child.stdin?.end();
  });
}

const codeOf = (error: unknown): string => (error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "unreadable");
