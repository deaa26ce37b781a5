// The due-set: one sorted set a partition.
//
//   P1  `take` looks at the earliest of every partition in one round trip, then takes from the partition whose earliest is due first, in
//       one step. Where another taker came first it goes on to the next one, and looks again while there is anything.
//   P2  D3 across partitions: the look also finds the partition that knows the nonce, and that one answers.
//   P3  D4: what is scored too far ahead is looked for when nothing else is due, and first of all once in FAR_EVERY_MS, so that a busy store
//       does not hide it.

import type { DueSet, Lease } from "../../due.ts";
import { WAIT_MAX_MS } from "../../due.ts";
import type { Fence, Position, SessionId } from "../../ids.ts";
import { position } from "../../ids.ts";
import { refused } from "./append.ts";
import type { Bells } from "./bells.ts";
import type { Commands } from "./commands.ts";
import { DUE_BELL, dueKey, keysOf, metaPrefix, partitions, takenKey } from "./keys.ts";
import { list, text, whole } from "./reply.ts";

const LOOKS_MAX = 32;
const FAR_EVERY_MS = 1_000;
const TAKEN_KEPT_MS = 60_000;

interface Place {
  readonly partition: number;
  /** There is something scored too far ahead. */
  readonly isFar: boolean;
}

export class RedisDueSet {
  readonly #commands: Commands;
  readonly #bells: Bells;
  readonly #leaseMs: number;
  #farAt = 0;

  constructor(commands: Commands, bells: Bells, leaseMs: number) {
    this.#commands = commands;
    this.#bells = bells;
    this.#leaseMs = leaseMs;
  }

  async take(host: string, nonce: string): Promise<Lease | null> {
    for (let looks = 0; looks < LOOKS_MAX; looks++) {
      const places = await this.#look(host, nonce);
      if (places.length === 0) return null;
      for (const place of places) {
        const lease = await this.#takeFrom(place, host, nonce);
        if (lease === "over") return null;
        if (lease) return lease;
      }
    }
    return null;
  }

  async renew(lease: Lease): Promise<Position | "lost"> {
    const { meta, due } = keysOf(lease.id);
    const answer = await this.#commands.step("renew", [meta, due], [lease.id, lease.fence, lease.leaseMs]);
    return answer.word === "ok" ? position(whole(answer.rest[0])) : "lost";
  }

  async wake(id: SessionId): Promise<void> {
    const { meta, due } = keysOf(id);
    const answer = await this.#commands.step("wake", [meta, due], [id, DUE_BELL]);
    if (answer.word !== "ok") throw refused(answer);
  }

  onDue(hear: () => void): ReturnType<DueSet["onDue"]> {
    return this.#bells.listen(DUE_BELL, hear);
  }

  async #takeFrom({ partition, isFar }: Place, host: string, nonce: string): Promise<Lease | "over" | null> {
    const answer = await this.#commands.step(
      "take",
      [dueKey(partition), takenKey(partition, host, nonce)],
      [metaPrefix(partition), host, this.#leaseMs, WAIT_MAX_MS, TAKEN_KEPT_MS, isFar ? 1 : 0],
    );
    if (answer.word === "none") return null;
    if (answer.word === "over") return "over";
    if (answer.word !== "ok") throw refused(answer);
    const [id, fence, head, attempt] = text(answer.rest[0]).split(" ");
    return {
      id: text(id) as SessionId,
      fence: whole(fence) as Fence,
      head: position(whole(head)),
      attempt: whole(attempt),
      leaseMs: this.#leaseMs,
    };
  }

  /** Where to take from, the earliest due first. P1 P2 P3 */
  async #look(host: string, nonce: string): Promise<readonly Place[]> {
    const all = partitions();
    const [time, known, ...firsts] = await this.#commands.read([
      ["TIME"],
      ["MGET", ...all.map((partition) => takenKey(partition, host, nonce))],
      ...all.map((partition) => ["ZRANGE", dueKey(partition), "0", "0", "WITHSCORES"]),
    ]);
    const taken = list(known).findIndex((lease) => lease !== null);
    if (taken >= 0) return [{ partition: taken, isFar: false }];

    const now = millisOf(time);
    const held = all.flatMap((partition) => {
      const score = scoreOf(firsts[partition]);
      return score === null ? [] : [{ partition, score, isFar: false }];
    });
    const due = held.filter(({ score }) => score <= now).sort((one, other) => one.score - other.score);
    if (held.length === 0 || (due.length > 0 && performance.now() - this.#farAt < FAR_EVERY_MS)) return due;

    this.#farAt = performance.now();
    const lasts = await this.#commands.read(held.map(({ partition }) => ["ZRANGE", dueKey(partition), "0", "0", "REV", "WITHSCORES"]));
    const far = held.filter((_, index) => (scoreOf(lasts[index]) ?? now) > now + WAIT_MAX_MS);
    return [...far.map(({ partition }) => ({ partition, isFar: true })), ...due];
  }
}

function millisOf(time: unknown): number {
  const [seconds, micros] = list(time);
  return whole(seconds) * 1000 + Math.floor(whole(micros) / 1000);
}

/** The score of the only member of a range; null when it is empty. */
function scoreOf(range: unknown): number | null {
  const [member, score] = list(range);
  return member === undefined ? null : whole(score);
}
