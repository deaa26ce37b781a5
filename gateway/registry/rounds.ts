// Looking at registered hands by itself, so that what is shown of a server that died is not what it was when somebody last used it.
//
//   R1  One gateway at a time: a round is claimed in a document, and the claim renewed before each few hands. A gateway that dies in one loses it with
//       the claim's time; what it looked at meanwhile was looked at.
//   R2  A hand is due some time after it was last looked at, by whomever. One that fails is looked at again sooner, and then ever more seldom: after
//       half the time for which it has failed already. Hands that came together do not stay together.
//   R3  At most HANDS_AT_ONCE at a time and HANDS_A_ROUND in a round, those that waited longest first.
//   R4  A program of the operator's file is nobody's server that could have died: it is started to be looked at only when the last look failed.

import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { HAND_KIND, RegisteredHand } from "../../hands/registry.ts";
import type { Document, Documents } from "../../session-store/documents.ts";
import { Refusal } from "../../session-store/refusal.ts";

const CLAIM_KIND = "hand_round";
const CLAIM_ID = "round";
const HANDS_AT_ONCE = 4;
const HANDS_A_ROUND = 100;
const PAGE = 100;
const PAGES_MAX = 100;
/** Longer than a look can take. */
const CLAIM_MS = 90_000;
/** A round is this part of the time after which a hand is due. */
const ROUNDS = 10;
const ROUND_MS_MAX = 30_000;
/** A hand that fails: not sooner than this part of the usual time, not later than so many times it. */
const SOONER = 5;
const LATER = 12;
/** Of the usual time, at most: by name, so that it is the same on every gateway. */
const SPREAD = 0.2;

export interface RoundsOptions {
  readonly documents: Documents;
  readonly everyMs: number;
  readonly log: Logger;
  check(workspace: string, name: string): Promise<unknown>;
}

type Looked = Pick<RegisteredHand, "name" | "transport" | "health" | "failing_since">;

/** When a hand is to be looked at next; null: by whoever uses it. R2 R4 */
export function dueAt({ name, transport, health, failing_since }: Looked, everyMs: number): number | null {
  const { checked_at: at, status } = health;
  if (transport.type === "stdio" && status !== "failed") return null;
  if (at === null) return 0;
  const spread = 1 + (createHash("sha256").update(name).digest().readUInt16BE(0) / 0xffff) * SPREAD;
  if (status !== "failed") return at + everyMs * spread;
  const failingMs = at - (failing_since ?? at);
  return at + Math.min(Math.max(failingMs / 2, everyMs / SOONER), everyMs * LATER) * spread;
}

export class Rounds {
  readonly #options: RoundsOptions;

  constructor(options: RoundsOptions) {
    this.#options = options;
  }

  /** Until `signal` ends it. */
  async run(workspace: string, signal: AbortSignal): Promise<void> {
    const { everyMs, log } = this.#options;
    const roundMs = Math.min(everyMs / ROUNDS, ROUND_MS_MAX);
    while (!signal.aborted) {
      await sleep(roundMs * (0.5 + Math.random()), undefined, { signal }).catch(() => {});
      if (signal.aborted) return;
      try {
        await this.round(workspace, roundMs, signal);
      } catch (error) {
        // The store can't be reached, say: the next round comes.
        if (!signal.aborted) log.warn({ reason: error instanceof Error ? error.message.slice(0, 200) : "unknown" }, "hands.not_looked_at");
      }
    }
  }

  /** R1 R3. Gives how many hands were looked at. */
  async round(workspace: string, roundMs: number, signal: AbortSignal): Promise<number> {
    let claim = await this.#claim(workspace, null, CLAIM_MS);
    if (claim === null) return 0;
    const due = await this.#due(workspace);
    let looked = 0;
    for (; looked < due.length && !signal.aborted; looked += HANDS_AT_ONCE) {
      if (looked > 0) claim = await this.#claim(workspace, claim, CLAIM_MS);
      if (claim === null) return looked;
      await Promise.all(due.slice(looked, looked + HANDS_AT_ONCE).map((name) => this.#look(workspace, name)));
    }
    await this.#claim(workspace, claim, roundMs / 2);
    return Math.min(looked, due.length);
  }

  async #due(workspace: string): Promise<readonly string[]> {
    const { documents, everyMs, log } = this.#options;
    const now = Date.now();
    const due: { readonly name: string; readonly at: number }[] = [];
    let last: Document | undefined;
    for (let pages = 0; pages < PAGES_MAX; pages += 1) {
      const beyond = last && { createdAt: last.createdAt, id: last.id };
      const page = await documents.list(workspace, HAND_KIND, { order: "asc", limit: PAGE, ...(beyond && { beyond }) });
      for (const { id, body } of page) {
        const record = RegisteredHand.safeParse(body);
        if (!record.success) {
          // One that nobody can read keeps no other from being looked at.
          log.error({ hand: id }, "hand.unreadable");
          continue;
        }
        const at = dueAt(record.data, everyMs);
        if (at !== null && at <= now) due.push({ name: record.data.name, at });
      }
      last = page.at(-1);
      if (page.length < PAGE) break;
    }
    return due
      .sort((one, other) => one.at - other.at)
      .slice(0, HANDS_A_ROUND)
      .map(({ name }) => name);
  }

  async #look(workspace: string, name: string): Promise<void> {
    const { check, log } = this.#options;
    try {
      await check(workspace, name);
    } catch (error) {
      // It was removed meanwhile, or it could not be written down; the next round sees.
      if (!(error instanceof Refusal)) log.warn({ hand: name, err: error }, "hand.not_checked");
    }
  }

  /** A claim for so long, in the place of `mine` or of one whose time is over. Null: another gateway has it. R1 */
  async #claim(workspace: string, mine: number | null, forMs: number): Promise<number | null> {
    const { documents } = this.#options;
    const now = Date.now();
    const present = mine === null ? await documents.get(workspace, CLAIM_KIND, CLAIM_ID) : null;
    if (present !== null && untilOf(present) > now) return null;
    const write = { kind: CLAIM_KIND, id: CLAIM_ID, body: { until: now + forMs }, replaces: mine ?? present?.revision ?? 0 };
    try {
      const [claim] = await documents.put(workspace, [write]);
      return claim?.revision ?? null;
    } catch (error) {
      if (error instanceof Refusal && error.code === "document_changed") return null;
      throw error;
    }
  }
}

function untilOf({ body }: Document): number {
  const until = typeof body === "object" && body !== null && "until" in body ? body.until : 0;
  return typeof until === "number" ? until : 0;
}
