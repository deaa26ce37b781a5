// Sessions and their logs: each call one step, or one read.

import { randomUUID } from "node:crypto";
import type { Lease } from "../../due.ts";
import { effectsOfAll } from "../../effects.ts";
import type { BrainEntry, OutsideEntry, Stored } from "../../entry.ts";
import type { Fence, Position, SessionId } from "../../ids.ts";
import { position } from "../../ids.ts";
import { Refusal } from "../../refusal.ts";
import type { SessionRecord } from "../../session.ts";
import type { NewSession, ReceiveOptions, Slice } from "../../store.ts";
import { appended, blockOf, eventIdOf, placed, refused, storedOf } from "./append.ts";
import type { Commands } from "./commands.ts";
import { DUE_BELL, indexKey, keysOf, partitionOf, retryKey } from "./keys.ts";
import { readEvents } from "./read.ts";
import { knownRecord } from "./record.ts";
import { list, text, whole } from "./reply.ts";

const RETRY_DIGEST_MS = 60_000;
const OUTSIDE = 0 as Fence;

export class Sessions {
  readonly #commands: Commands;

  constructor(commands: Commands) {
    this.#commands = commands;
  }

  async create({ id, created, entries, digest = "" }: NewSession): Promise<SessionRecord> {
    const keys = keysOf(id);
    const index = indexKey(partitionOf(id), created.workspace);
    const all = [created, ...entries];
    const effects = effectsOfAll(all);
    const ids = distinctIds(entries);
    const answer = await this.#commands.step(
      "create",
      [keys.log, keys.meta, keys.due, keys.ids, index],
      [id, keys.bell, DUE_BELL, created.workspace, digest, flag(effects.wakes), ids.length, ...ids, ...blockOf(all, effects, false)],
    );
    if (answer.word !== "ok") throw refused(answer);
    return knownRecord(answer.rest[0]);
  }

  async receive(id: SessionId, entries: readonly OutsideEntry[], options: ReceiveOptions = {}): Promise<readonly Stored[] | "moved"> {
    const { gate, onlyIdle = false, digest = "", retryDigest } = options;
    const keys = keysOf(id);
    const effects = effectsOfAll(entries);
    const ids = distinctIds(entries);
    const answer = await this.#commands.step(
      "receive",
      [keys.log, keys.meta, keys.due, keys.ids, retryKey(id, retryDigest ?? "")],
      [
        ...[id, keys.bell, DUE_BELL, gate ?? "", flag(onlyIdle), digest, retryDigest === undefined ? 0 : RETRY_DIGEST_MS],
        ...[flag(effects.wakes), flag(effects.isUrgent), ids.length, ...ids],
        ...blockOf(entries, effects, effects.isProgress),
      ],
    );
    const [first, second] = answer.rest;
    switch (answer.word) {
      case "ok":
        return placed(entries, whole(first), whole(second), OUTSIDE);
      case "known":
        return list(first).map(storedOf);
      case "moved":
        return "moved";
      default:
        throw refused(answer);
    }
  }

  async emitEvents(lease: Lease, n: number, entries: readonly BrainEntry[], isRecovery: boolean): Promise<readonly Stored[]> {
    const keys = keysOf(lease.id);
    const effects = effectsOfAll(entries);
    const block = blockOf(entries, effects, effects.isProgress && !isRecovery);
    const answer = await this.#commands.step("emit-events", [keys.log, keys.meta], [lease.fence, n, keys.bell, ...block]);
    return appended(answer, entries, lease.fence);
  }

  async finish(lease: Lease, n: number, seen: Position, entries: readonly BrainEntry[], waitMs?: number): Promise<readonly Stored[] | "more"> {
    const keys = keysOf(lease.id);
    const effects = effectsOfAll(entries);
    const answer = await this.#commands.step(
      "finish",
      [keys.log, keys.meta, keys.due],
      [
        lease.fence,
        n,
        keys.bell,
        DUE_BELL,
        lease.id,
        seen,
        waitMs === undefined ? "" : Math.ceil(waitMs),
        ...blockOf(entries, effects, effects.isProgress),
      ],
    );
    return answer.word === "more" ? "more" : appended(answer, entries, lease.fence);
  }

  async release(lease: Lease, n: number, entries: readonly BrainEntry[], waitMs: number): Promise<readonly Stored[]> {
    const keys = keysOf(lease.id);
    const effects = effectsOfAll(entries);
    const answer = await this.#commands.step(
      "release",
      [keys.log, keys.meta, keys.due],
      [lease.fence, n, keys.bell, DUE_BELL, lease.id, Math.ceil(waitMs), ...blockOf(entries, effects, effects.isProgress)],
    );
    return appended(answer, entries, lease.fence);
  }

  getEvents(id: SessionId, slice: Slice): Promise<readonly Stored[]> {
    return readEvents(this.#commands, id, slice);
  }

  async getSession(id: SessionId): Promise<SessionRecord> {
    const [hash] = await this.#commands.read([["HGETALL", keysOf(id).meta]]);
    return knownRecord(hash);
  }

  async recall(id: SessionId, retryDigest: string): Promise<readonly Position[] | null> {
    const [places] = await this.#commands.read([["GET", retryKey(id, retryDigest)]]);
    return places === null ? null : text(places).split(" ").map(whole).map(position);
  }

  async forget(id: SessionId, retryDigest: string): Promise<void> {
    await this.#commands.write(["DEL", retryKey(id, retryDigest)]);
  }

  async remove(id: SessionId): Promise<void> {
    const keys = keysOf(id);
    const answer = await this.#commands.step("remove", [keys.log, keys.meta, keys.due, keys.ids], [id, keys.bell, randomUUID()]);
    if (answer.word !== "ok") throw refused(answer);
  }
}

const flag = (claim: boolean): string => (claim ? "1" : "0");

/** The event ids of a request; one id twice has no right answer. */
function distinctIds(entries: readonly OutsideEntry[]): readonly string[] {
  const ids = entries.map(eventIdOf);
  if (new Set(ids).size < ids.length) throw new Refusal("idempotency_conflict", "An event id stands twice in one request.");
  return ids;
}
