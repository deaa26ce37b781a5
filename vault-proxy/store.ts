// Where vaults rest: records that are sealed, read and written whole, behind one contract for every driver.
//
//   T1  A write names the revision that it replaces (0: there is none yet) and is refused if another write came between.
//   T2  What `put` has answered survives a crash of this process and of the machine; a crash in the middle leaves the old record or the new one, whole.
//   T3  Nothing of a record's body can be read or exchanged on the disk, or in the server's storage, without the key that seals it.
//   T4  A record that was replaced or removed can't be read through this contract any more, nor through the driver's own interface.
//   T5  Trouble of the storage itself is a `StoreTrouble`: its message and its cause hold no body, no key and no token.

/**
 * `vault`: a vault with its credentials. `create`: which id a create with an idempotency key was given. `authority`: what the egress proxy signs
 * certificates and makes placeholders with, and the key of seals. `revocation`: a session whose grants count no more (revocations.ts). `authorization`:
 * one that a person is in the middle of (oauth/flows.ts). `repository`: what a session's repositories are opened with. `spend`: what a session took of its
 * limit (models/shared-spend.ts).
 */
export type RecordKind = "vault" | "create" | "authority" | "revocation" | "authorization" | "repository" | "spend";

/** Where our own records lie, which are of no caller. */
export const OWN_WORKSPACE = "manyhands";

export interface RecordKey {
  readonly workspace: string;
  readonly kind: RecordKind;
  readonly id: string;
}

export interface Opened {
  /** As JSON reads it. From outside, like everything that comes from a disk: to be read by a schema. Whoever asks again may be given the same: it is not to be changed. */
  readonly body: unknown;
  readonly revision: number;
}

/** The longest record, as JSON. Every storage of a Vault server takes it, and so does a disk. */
export const RECORD_BYTES_MAX = 480_000;

export interface VaultStore {
  readonly driver: "file" | "server";
  get(key: RecordKey): Promise<Opened | null>;
  /** Writes the whole record; gives its revision, or "changed" where `replaces` is not its revision. T1 T2 */
  put(key: RecordKey, body: unknown, replaces: number): Promise<number | "changed">;
  /** Absent already is fine. T2 T4 */
  remove(key: RecordKey): Promise<void>;
  /** Every id of a workspace and kind, in the order of their characters. */
  ids(workspace: string, kind: RecordKind): Promise<readonly string[]>;
  close(): Promise<void>;
}

/**
 * Why the storage can't do it. `sealed`, `denied`, `away`, `full`: the operator must look. `in_doubt`: a write that may have happened.
 * `unreadable`: a record that the key does not open, or that was changed outside.
 */
export type TroubleReason = "sealed" | "denied" | "away" | "full" | "busy" | "in_doubt" | "unreadable";

export class StoreTrouble extends Error {
  override readonly name = "StoreTrouble";
  readonly reason: TroubleReason;
  /** For our log: codes and statuses, never content. T5 */
  readonly detail: string;

  constructor(reason: TroubleReason, detail: string) {
    super(`The credential store can't be used: ${reason}.`);
    this.reason = reason;
    this.detail = detail;
  }
}

const WORKSPACE = /^[0-9A-Za-z_-]{1,64}$/;
const ID = /^[0-9A-Za-z_]{1,128}$/;

/** A key becomes a path and an address: anything but plain names is a bug of the caller. */
export function checkKey({ workspace, id }: RecordKey): void {
  if (!WORKSPACE.test(workspace) || !ID.test(id)) throw new Error("a record's key is not made of plain names");
}

/** A body as it is stored. */
export function textOf(body: unknown): string {
  const text = JSON.stringify(body);
  if (Buffer.byteLength(text) > RECORD_BYTES_MAX) throw new Error("a record is over the limit; its writer must see to that");
  return text;
}
