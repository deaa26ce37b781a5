// The embedded store: SQLite in a thread of this process, for one node without anything else installed. Its promises are those of store.ts.

import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Document, DocumentQuery, DocumentWrite, PutOptions } from "../../documents.ts";
import type { Lease } from "../../due.ts";
import type { BrainEntry, OutsideEntry, Stored } from "../../entry.ts";
import type { Fence, Position, SessionId, Topic } from "../../ids.ts";
import { position } from "../../ids.ts";
import { Refusal } from "../../refusal.ts";
import type { SessionRecord } from "../../session.ts";
import type { Bell, NewSession, Preview, ReceiveOptions, SessionQuery, SessionStore, Slice } from "../../store.ts";
import { Bells } from "./bells.ts";
import { Channel } from "./channel.ts";
import { appendedOf, appendOf, bytesOf, documentOf, recordOf, storedOf, writeOf } from "./texts.ts";

const PAGE = 500;
const PAGE_MAX = 10_000;
const LOCK_WAIT_MS = 10_000;
const PING_MS = 2_000;

export interface EmbeddedOptions {
  /** The folder of this store alone. */
  readonly dir: string;
  readonly leaseMs: number;
  /** How long an opener waits for the one before it to end. */
  readonly lockWaitMs?: number;
  /** NORMAL syncs no commit: it is there to be seen losing in a power cut, never for use. */
  readonly synchronous?: "FULL" | "NORMAL";
  /** The most pages of 4 KiB that the database may have; beyond it the disk counts as full. */
  readonly pagesMax?: number;
  /** Told when the disk or the thread failed. This process must not go on; by default it is an uncaught exception. */
  readonly onFatal?: (error: Error) => void;
}

/** Opens the store in `dir`; refuses (`store_unfit`) when another process has it or a newer version wrote it. */
export async function openEmbeddedStore(options: EmbeddedOptions): Promise<SessionStore> {
  const { dir, leaseMs, lockWaitMs = LOCK_WAIT_MS, synchronous = "FULL", pagesMax = null, onFatal = throwUncaught } = options;
  const bells = new Bells();
  const onRings = (rings: readonly { id: string; head: number }[], isDue: boolean) => {
    for (const { id, head } of rings) bells.ring(id, head < 0 ? { type: "look" } : { type: "head", head: position(head) });
    if (isDue) bells.ringDue();
  };
  const channel = await Channel.open(workerFile(), { dir, leaseMs, lockWaitMs, synchronous, pagesMax }, { onFatal, onRings });
  return new EmbeddedStore(channel, bells, leaseMs);
}

class EmbeddedStore implements SessionStore {
  readonly #channel: Channel;
  readonly #bells: Bells;
  readonly #leaseMs: number;

  constructor(channel: Channel, bells: Bells, leaseMs: number) {
    this.#channel = channel;
    this.#bells = bells;
    this.#leaseMs = leaseMs;
  }

  async create({ id, created, entries, digest = "" }: NewSession): Promise<SessionRecord> {
    const append = appendOf([created, ...entries], true);
    return recordOf(await this.#channel.ask("create", { id, workspace: created.workspace, digest, append }, { bytes: bytesOf(append) }));
  }

  async receive(id: SessionId, entries: readonly OutsideEntry[], options: ReceiveOptions = {}): Promise<readonly Stored[] | "moved"> {
    const { gate = null, onlyIdle = false, digest = "", retryDigest = null } = options;
    const append = appendOf(entries, true);
    const answer = await this.#channel.ask("receive", { id, append, gate, onlyIdle, digest, retryDigest }, { bytes: bytesOf(append) });
    return answer === "moved" ? answer : appendedOf(answer, 0, entries);
  }

  async emitEvents({ id, fence }: Lease, n: number, entries: readonly BrainEntry[], { isRecovery = false } = {}): Promise<readonly Stored[]> {
    const append = appendOf(entries, false);
    return appendedOf(await this.#channel.ask("emitEvents", { id, fence, n, append, isRecovery }, { bytes: bytesOf(append) }), fence, entries);
  }

  async finish(
    { id, fence }: Lease,
    n: number,
    seen: Position,
    entries: readonly BrainEntry[],
    waitMs?: number,
  ): Promise<readonly Stored[] | "more"> {
    const append = appendOf(entries, false);
    const answer = await this.#channel.ask(
      "finish",
      { id, fence, n, append, seen, waitMs: waitMs === undefined ? null : Math.ceil(waitMs) },
      { bytes: bytesOf(append) },
    );
    return answer === "more" ? answer : appendedOf(answer, fence, entries);
  }

  async release({ id, fence }: Lease, n: number, entries: readonly BrainEntry[], waitMs: number): Promise<readonly Stored[]> {
    const append = appendOf(entries, false);
    return appendedOf(
      await this.#channel.ask("release", { id, fence, n, append, waitMs: Math.ceil(waitMs) }, { bytes: bytesOf(append) }),
      fence,
      entries,
    );
  }

  async getEvents(id: SessionId, slice: Slice = {}): Promise<readonly Stored[]> {
    const { after = 0, before = Number.MAX_SAFE_INTEGER, types = null, order = "asc", limit = PAGE } = slice;
    return (await this.#channel.ask("getEvents", { id, after, before, types, order, limit: Math.min(limit, PAGE_MAX) })).map(storedOf);
  }

  async getSession(id: SessionId): Promise<SessionRecord> {
    return recordOf(await this.#channel.ask("getSession", { id }));
  }

  async listSessions(workspace: string, query: SessionQuery): Promise<readonly SessionRecord[]> {
    return (await this.#channel.ask("listSessions", { workspace, query: bounded(query) })).map(recordOf);
  }

  async recall(id: SessionId, retryDigest: string): Promise<readonly Position[] | null> {
    return (await this.#channel.ask("recall", { id, retryDigest }))?.map(position) ?? null;
  }

  async forget(id: SessionId, retryDigest: string): Promise<void> {
    await this.#channel.ask("forget", { id, retryDigest });
  }

  async remove(id: SessionId): Promise<void> {
    await this.#channel.ask("remove", { id });
  }

  async take(host: string, nonce: string): Promise<Lease | null> {
    const lease = await this.#channel.ask("take", { host, nonce });
    if (!lease) return null;
    const { id, fence, head, attempt } = lease;
    return { id: id as SessionId, fence: fence as Fence, head: position(head), attempt, leaseMs: this.#leaseMs };
  }

  async renew({ id, fence }: Lease): Promise<Position | "lost"> {
    const head = await this.#channel.ask("renew", { id, fence });
    return head === "lost" ? head : position(head);
  }

  async wake(id: SessionId): Promise<void> {
    await this.#channel.ask("wake", { id });
  }

  async put(workspace: string, writes: readonly DocumentWrite[], { requires = [] }: PutOptions = {}): Promise<readonly Document[]> {
    const texts = writes.map(writeOf);
    const bytes = texts.reduce((sum, { body }) => sum + body.length, 0);
    return (await this.#channel.ask("put", { workspace, writes: texts, requires }, { bytes })).map(documentOf);
  }

  async get(workspace: string, kind: string, id: string): Promise<Document | null> {
    const text = await this.#channel.ask("get", { workspace, kind, id });
    return text && documentOf(text);
  }

  async list(workspace: string, kind: string, query: DocumentQuery): Promise<readonly Document[]> {
    return (await this.#channel.ask("list", { workspace, kind, query: bounded(query) })).map(documentOf);
  }

  async discard(workspace: string, kind: string, id: string, options: { readonly unlessAny?: string } = {}): Promise<void> {
    await this.#channel.ask("discard", { workspace, kind, id, unlessAny: options.unlessAny ?? null });
  }

  async listen(id: SessionId | Topic, hear: (bell: Bell) => void): Promise<() => void> {
    return this.#bells.listen(id, hear);
  }

  async onDue(hear: () => void): Promise<() => void> {
    return this.#bells.onDue(hear);
  }

  ring(topic: Topic): void {
    this.#bells.ring(topic, { type: "look" });
  }

  preview(id: SessionId, preview: Preview): void {
    this.#bells.ring(id, { type: "preview", preview });
  }

  async ping(): Promise<void> {
    await this.#channel.ask("ping", null, { deadlineMs: PING_MS });
  }

  close(): Promise<void> {
    return this.#channel.close();
  }
}

function bounded<Query extends { readonly limit: number }>(query: Query): Query {
  return { ...query, limit: Math.min(query.limit, PAGE_MAX) };
}

/** A thread starts from plain JavaScript: beside this file when it is built, else in the build of this repository. */
function workerFile(): string {
  const built = fileURLToPath(new URL("./worker.js", import.meta.url));
  if (existsSync(built)) return built;
  const fromSource = fileURLToPath(new URL("../../../dist/session-store/drivers/embedded/worker.js", import.meta.url));
  if (existsSync(fromSource)) return fromSource;
  throw new Refusal("store_unfit", "The store's thread is not built; run `npm run build` first.");
}

function throwUncaught(error: Error): void {
  process.nextTick(() => {
    throw error;
  });
}
