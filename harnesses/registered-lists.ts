// What the model is told of a registered hand's tools: what was approved of them, and never what the server says now.
//
//   T1  A server's list is held against the approved one; what differs is written into the record, for everyone, before the next thing is told.
//   T2  While the server says nothing, what was approved stands.
//   T3  A record that has no list yet takes the first one that a session reads as approved, but for what looks suspicious (P1 of pins.ts).

import { createHash } from "node:crypto";
import type { ServerNote, ServerTools } from "../hands/hand.ts";
import { isSame, offered, type Pins, pinned } from "../hands/pins.ts";
import { changeHand, type RegisteredHand } from "../hands/registry.ts";
import type { ServerRef } from "../session-store/events/log.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { LeaseContext } from "./host-context.ts";
import type { Journal } from "./journal.ts";
import { type Found, findRegistered, nameOf } from "./registered.ts";

type Ready = Extract<ServerTools, { type: "ready" }>;

export class RegisteredLists {
  readonly #context: LeaseContext;
  readonly #journal: Journal;
  /** The last list that each server gave in this lease, by the agent's name for it. */
  readonly #live = new Map<string, Ready>();

  constructor(context: LeaseContext, journal: Journal) {
    this.#context = context;
    this.#journal = journal;
  }

  /** Hash of the list that this lease has of a server. */
  hashOf(server: string): string | null {
    return this.#live.get(server)?.hash ?? null;
  }

  find(server: ServerRef): Promise<Found> {
    return findRegistered(this.#context.store, this.#journal.view.workspace, server);
  }

  /** What is to be said of a hand whose server said `said`. T1 T2 T3 */
  async told(server: ServerRef, record: RegisteredHand | null, said: ServerTools): Promise<readonly ServerTools[]> {
    if (record === null) return [said];
    if (said.type === "ready") this.#live.set(server.name, said);
    const live = said.type === "ready" || said.type === "same" ? this.#live.get(server.name) : undefined;
    const now = live === undefined ? record : await this.#held(server, record, live);
    if (now.tools === null) return [said];
    const list = listOf(now);
    const isTold = this.#journal.view.servers.listOf(server)?.hash === list.hash;
    return [isTold ? { type: "same" } : { type: "ready", ...list }, ...(said.type === "failed" ? [said] : [])];
  }

  async #held(server: ServerRef, record: RegisteredHand, live: Ready): Promise<RegisteredHand> {
    const after = pinned(record, live.tools);
    if (isSame(record, after)) return record;
    const { store, lease, log } = this.#context;
    const name = nameOf(server.url) ?? "";
    log.warn({ sessionId: lease.id, hand: name, held: after.held_back.length, missing: after.missing?.length ?? 0 }, "hand.tools_differ");
    try {
      return (await changeHand(store, this.#journal.view.workspace, name, (present) => withPins(present, pinned(present, live.tools)))) ?? record;
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      // What is held back counts here all the same; the next look writes it down.
      log.warn({ sessionId: lease.id, hand: name, code: error.code }, "hand.not_written");
      return { ...record, ...after };
    }
  }
}

const withPins = (present: RegisteredHand, pins: Pins): RegisteredHand | null => (isSame(present, pins) ? null : { ...present, ...pins });

function listOf(record: RegisteredHand): Pick<Ready, "hash" | "tools" | "notes"> {
  const tools = offered(record);
  const notes = record.held_back
    .filter(({ name }) => record.allowed_tools === null || record.allowed_tools.includes(name))
    .map(
      ({ name, reason, says = reason }): ServerNote => ({ tool: name, keyword: reason, what: "left_out", says: `${says}; it waits for approval` }),
    );
  const hash = createHash("sha256")
    .update(JSON.stringify([tools.map(({ name, hash }) => [name, hash]), notes]))
    .digest("hex")
    .slice(0, 32);
  return { hash, tools, notes };
}
