// The due-set: one sorted set a partition.
//
//   P1  `take` looks at the earliest of every partition in one round trip, then takes from the partition whose earliest is due first, in
//       one step. Between the two another taker may come first: it looks again, a few times.
//   P2  D3 across partitions: the partition that a nonce was sent to is asked first when the same nonce comes again.
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

const LOOKS_MAX = 4;
const FAR_EVERY_MS = 1_000;
const TAKEN_KEPT_MS = 60_000;
const NONCES_MAX = 1_000;

interface Place {
  readonly partition: number;
  /** There is something scored too far ahead. */
  readonly isFar: boolean;
}

export class RedisDueSet {
  readonly #commands: Commands;
  readonly #bells: Bells;
  readonly #leaseMs: number;
  /** Nonce -> partition, of the newest takes. P2 */
  readonly #sent = new Map<string, number>();
  #farAt = 0;

  constructor(commands: Commands, bells: Bells, leaseMs: number) {
    this.#commands = commands;
    this.#bells = bells;
    this.#leaseMs = leaseMs;
  }

  async take(host: string, nonce: string): Promise<Lease | null> {
    const sent = this.#sent.get(nonce);
    if (sent !== undefined) {
      const lease = await this.#takeFrom({ partition: sent, isFar: false }, host, nonce);
      if (lease) return lease;
    }
    for (let looks = 0; looks < LOOKS_MAX; looks++) {
      const place = await this.#look();
      if (!place) return null;
      const lease = await this.#takeFrom(place, host, nonce);
      if (lease) return lease;
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

  async #takeFrom({ partition, isFar }: Place, host: string, nonce: string): Promise<Lease | null> {
    this.#remember(nonce, partition);
    const answer = await this.#commands.step(
      "take",
      [dueKey(partition), takenKey(partition, host, nonce)],
      [metaPrefix(partition), host, this.#leaseMs, WAIT_MAX_MS, TAKEN_KEPT_MS, isFar ? 1 : 0],
    );
    if (answer.word === "none") return null;
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

  /** Where to take from. P1 P3 */
  async #look(): Promise<Place | null> {
    const looks = partitions().map((partition) => ["ZRANGE", dueKey(partition), "0", "0", "WITHSCORES"]);
    const [time, ...firsts] = await this.#commands.read([["TIME"], ...looks]);
    const [seconds, micros] = list(time).map(whole);
    if (seconds === undefined || micros === undefined) throw new TypeError("Redis did not tell the time");
    const now = seconds * 1000 + Math.floor(micros / 1000);
    const scores = firsts.map(scoreOf);
    const earliest = scores.indexOf(Math.min(...scores));
    const isDue = (scores[earliest] ?? Number.POSITIVE_INFINITY) <= now;
    if (isDue && performance.now() - this.#farAt < FAR_EVERY_MS) return { partition: earliest, isFar: false };

    this.#farAt = performance.now();
    const held = partitions().filter((partition) => Number.isFinite(scores[partition]));
    const lasts = await this.#commands.read(held.map((partition) => ["ZRANGE", dueKey(partition), "0", "0", "REV", "WITHSCORES"]));
    const far = held[lasts.findIndex((last) => Number.isFinite(scoreOf(last)) && scoreOf(last) > now + WAIT_MAX_MS)];
    if (far !== undefined) return { partition: far, isFar: true };
    return isDue ? { partition: earliest, isFar: false } : null;
  }

  #remember(nonce: string, partition: number): void {
    this.#sent.delete(nonce);
    this.#sent.set(nonce, partition);
    const [oldest] = this.#sent.keys();
    if (this.#sent.size > NONCES_MAX && oldest !== undefined) this.#sent.delete(oldest);
  }
}

const scoreOf = (range: unknown): number => {
  const [member, score] = list(range);
  return member === undefined ? Number.POSITIVE_INFINITY : whole(score);
};
