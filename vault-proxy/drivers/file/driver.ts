// The file vault: one folder, one owner, a sealed file for each record. For one node; several nodes share a Vault server instead.
//
//   F3  One owner: an exclusive lock on a file of its own is held for life; the death of the process frees it.
//   F4  Writes of one record follow one another; at most WAITING_MAX wait altogether.
//   F5  `vault.json` names the key by which everything is sealed. It changes only after a rotation has been through every record; until then the
//       keyring must hold the key before, and a crash in the middle is gone on with at the next start.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import Database from "libsql";
import { z } from "zod";
import { checkKey, type Opened, type RecordKey, type RecordKind, StoreTrouble, textOf, type VaultStore } from "../../store.ts";
import { isCode, makeFolder, namesIn, removeDrafts, removeFile, replaceFile } from "./durable.ts";
import { type Envelope, readEnvelope, reseal, seal, unseal } from "./envelope.ts";
import { type Keyring, type KeySource, readKeyring, VaultSettingError } from "./keyring.ts";
import { OpenedRecords } from "./opened.ts";

const KINDS: readonly RecordKind[] = ["vault", "create", "authority", "revocation", "authorization", "repository", "spend"];
const LOCK_WAIT_MS = 10_000;
const LOCK_RETRY_MS = 100;
const WAITING_MAX = 1_000;

const State = z.object({ format: z.literal(1), sealedBy: z.string() });

export interface FileVaultOptions {
  readonly folder: string;
  readonly keys: KeySource;
  readonly lockWaitMs?: number;
  /** Hears of a rotation that went through every record, and of one that could not. */
  readonly onRotated?: (records: number, failed: StoreTrouble | null) => void;
}

export class FileVault implements VaultStore {
  readonly driver = "file";
  readonly #folder: string;
  readonly #lock: Database.Database;
  #keys: Keyring;
  /** The last write of each record that has one under way. F4 */
  readonly #busy = new Map<string, Promise<unknown>>();
  readonly #opened = new OpenedRecords();
  #waiting = 0;
  #rotating: Promise<void> = Promise.resolve();
  #isClosed = false;

  private constructor(folder: string, lock: Database.Database, keys: Keyring) {
    this.#folder = folder;
    this.#lock = lock;
    this.#keys = keys;
  }

  /** Opens the folder's vault; what the operator must put right is a `VaultSettingError`. F3 F5 */
  static async open({ folder, keys: source, lockWaitMs = LOCK_WAIT_MS, onRotated = () => {} }: FileVaultOptions): Promise<FileVault> {
    await makeFolder(folder);
    const lock = await take(join(folder, "lock"), lockWaitMs);
    try {
      const state = await readState(folder);
      const isFresh = state === null && (await countRecords(folder)) === 0;
      await removeDrafts(folder);
      for (const place of await places(folder)) await removeDrafts(place.path);
      const keys = await readKeyring(source, isFresh);
      const vault = new FileVault(folder, lock, keys);
      if (isFresh) await vault.#markSealed();
      else await vault.#resume(state, onRotated);
      return vault;
    } catch (error) {
      lock.close();
      throw error;
    }
  }

  async get(key: RecordKey): Promise<Opened | null> {
    const path = this.#path(key);
    const known = this.#opened.get(path);
    if (known) return known;
    const stamp = key.kind === "vault" ? this.#opened.stampOf(path) : null;
    const envelope = await this.#read(key);
    if (envelope === null) return null;
    const text = unseal(this.#keys, key, envelope);
    const opened = { body: JSON.parse(text), revision: envelope.revision };
    this.#opened.keep(path, stamp, opened, text.length);
    return opened;
  }

  put(key: RecordKey, body: unknown, replaces: number): Promise<number | "changed"> {
    const text = textOf(body);
    return this.#alone(key, async () => {
      const before = await this.#read(key);
      if ((before?.revision ?? 0) !== replaces) return "changed";
      const revision = replaces + 1;
      await onDisk(async () => {
        await makeFolder(this.#place(key));
        await replaceFile(this.#path(key), seal(this.#keys, key, revision, text));
      });
      return revision;
    });
  }

  remove(key: RecordKey): Promise<void> {
    return this.#alone(key, () => onDisk(() => removeFile(this.#path(key))));
  }

  async ids(workspace: string, kind: RecordKind): Promise<readonly string[]> {
    const names = await onDisk(() => namesIn(join(this.#folder, kind, workspace)));
    return names.sort();
  }

  /** Seals every record by a new current key; the keyring must still hold the ones before. Gives how many there were. F5 */
  async rotate(keys: Keyring): Promise<number> {
    this.#keys = keys;
    let count = 0;
    for (const { path, workspace, kind } of await places(this.#folder)) {
      for (const id of await namesIn(path)) {
        if (this.#isClosed) return count;
        await this.#alone({ workspace, kind, id }, () => this.#reseal({ workspace, kind, id }));
        count += 1;
      }
    }
    await this.#markSealed();
    return count;
  }

  get keys(): Keyring {
    return this.#keys;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#opened.clear();
    await this.#rotating;
    await Promise.allSettled(this.#busy.values());
    if (this.#lock.open) this.#lock.close();
  }

  async #resume(state: z.infer<typeof State> | null, onRotated: NonNullable<FileVaultOptions["onRotated"]>): Promise<void> {
    const keys = this.#keys;
    if (state?.sealedBy === keys.current.kid) return;
    if (state !== null && keys.find(state.sealedBy) === null)
      throw new VaultSettingError(
        `The vault in ${this.#folder} is sealed by the key ${state.sealedBy}, and the given key is ${keys.current.kid}. Give the right one, or the new one first and that one after it.`,
      );
    // Beside the work: every record opens by the old key as well, and a large vault takes its time.
    this.#rotating = this.rotate(keys).then(
      (count) => onRotated(count, null),
      (error: unknown) => {
        if (!(error instanceof StoreTrouble)) throw error;
        onRotated(0, error);
      },
    );
  }

  async #reseal(key: RecordKey): Promise<void> {
    const envelope = await this.#read(key);
    if (envelope === null || envelope.kid === this.#keys.current.kid) return;
    await onDisk(() => replaceFile(this.#path(key), reseal(this.#keys, key, envelope)));
  }

  async #markSealed(): Promise<void> {
    await onDisk(() => replaceFile(join(this.#folder, "vault.json"), `${JSON.stringify({ format: 1, sealedBy: this.#keys.current.kid })}\n`));
  }

  async #read(key: RecordKey): Promise<Envelope | null> {
    checkKey(key);
    let text: string;
    try {
      text = await readFile(this.#path(key), "utf8");
    } catch (error) {
      if (isCode(error, "ENOENT")) return null;
      throw troubleOf(error);
    }
    return readEnvelope(text);
  }

  #place({ workspace, kind }: RecordKey): string {
    return join(this.#folder, kind, workspace);
  }

  #path(key: RecordKey): string {
    checkKey(key);
    return join(this.#place(key), key.id);
  }

  /** Runs after what this record has under way. F4 */
  async #alone<T>(key: RecordKey, act: () => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new StoreTrouble("away", "the vault is closed");
    if (this.#waiting >= WAITING_MAX) throw new StoreTrouble("busy", `${WAITING_MAX} writes wait`);
    const name = this.#path(key);
    const before = this.#busy.get(name);
    this.#waiting += 1;
    const mine = (before ?? Promise.resolve()).then(act, act);
    this.#busy.set(name, mine);
    try {
      return await mine;
    } finally {
      this.#opened.changed(name);
      this.#waiting -= 1;
      if (this.#busy.get(name) === mine) this.#busy.delete(name);
    }
  }
}

interface Place {
  readonly path: string;
  readonly workspace: string;
  readonly kind: RecordKind;
}

async function places(folder: string): Promise<Place[]> {
  const found: Place[] = [];
  for (const kind of KINDS)
    for (const workspace of await namesIn(join(folder, kind))) found.push({ path: join(folder, kind, workspace), workspace, kind });
  return found;
}

async function countRecords(folder: string): Promise<number> {
  let count = 0;
  for (const { path } of await places(folder)) count += (await namesIn(path)).length;
  return count;
}

async function readState(folder: string): Promise<z.infer<typeof State> | null> {
  let text: string;
  try {
    text = await readFile(join(folder, "vault.json"), "utf8");
  } catch (error) {
    if (isCode(error, "ENOENT")) return null;
    throw troubleOf(error);
  }
  const read = State.safeParse(JSON.parse(text));
  if (!read.success) throw new VaultSettingError(`${join(folder, "vault.json")} was written by another version.`);
  return read.data;
}

/** SQLite's lock is the kernel's: it ends with the process, however that ends. F3 */
async function take(path: string, waitMs: number): Promise<Database.Database> {
  const deadline = performance.now() + waitMs;
  for (;;) {
    const lock = new Database(path);
    try {
      lock.exec("PRAGMA locking_mode = EXCLUSIVE");
      lock.exec("BEGIN EXCLUSIVE");
      return lock;
    } catch (error) {
      lock.close();
      if (!(error instanceof Error && "code" in error && String(error.code).startsWith("SQLITE_BUSY"))) throw error;
      if (performance.now() > deadline) throw new VaultSettingError(`Another vault proxy uses ${path}. Stop that one first.`);
    }
    await sleep(LOCK_RETRY_MS);
  }
}

async function onDisk<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw troubleOf(error);
  }
}

/** The system's own "no" in our words; anything else is a bug and stays one. */
function troubleOf(error: unknown): unknown {
  if (!(error instanceof Error && "code" in error && typeof error.code === "string" && "syscall" in error)) return error;
  return new StoreTrouble(error.code === "ENOSPC" || error.code === "EDQUOT" ? "full" : "away", error.code);
}
