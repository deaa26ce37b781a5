// A session's ties to its hands, the sandbox and a connection to each MCP server: which hand host has them, and that this lease's fence is known there.
//
//   B1  No hand is touched before something needs it; a hand that the log names only hears the new fence, beside inference.
//   B2  `log.hand` is durable before the first execute: whoever takes the session next asks the same host.
//   B3  The fence is announced, and answered, before anything is asked again, cancelled or closed there.
//   B4  A lost hand is said so in the log, once; the next call provisions a new one.
//   B5  A registered hand is provisioned as its registration stands: where that was changed since, anew. What was asked before is asked there again.

import type { HandRef, Holder, ServerWanted, Wanted } from "../hands/hand.ts";
import type { ServerRef } from "../session-store/events/log.ts";
import type { LeaseContext } from "./host-context.ts";
import type { Journal } from "./journal.ts";
import { nameOf, type Placed } from "./registered.ts";
import { serversOf } from "./tools.ts";
import type { BoundHand } from "./view.ts";

export class Bindings {
  readonly #context: LeaseContext;
  readonly #journal: Journal;
  readonly #sandbox: HandBinding;
  readonly #servers = new Map<string, HandBinding>();

  constructor(context: LeaseContext, journal: Journal) {
    this.#context = context;
    this.#journal = journal;
    this.#sandbox = new HandBinding(context, journal, null);
  }

  get holder(): Holder {
    return this.#sandbox.holder;
  }

  /** Of the session's sandbox, or of a server by the agent's name for it. */
  of(server: string | null): HandBinding {
    if (server === null) return this.#sandbox;
    // A server that the agent no longer has is at no address; its calls are refused before they come to this (C5 of calls.ts).
    const ref = serversOf(this.#journal.view.agent).find(({ name }) => name === server) ?? { name: server, url: "" };
    const key = JSON.stringify([ref.name, ref.url]);
    const binding = this.#servers.get(key) ?? new HandBinding(this.#context, this.#journal, { name: ref.name, url: ref.url });
    this.#servers.set(key, binding);
    return binding;
  }

  /** B1 */
  announce(): void {
    this.#sandbox.announce();
    for (const { name } of serversOf(this.#journal.view.agent)) this.of(name).announce();
  }
}

export class HandBinding {
  readonly #context: LeaseContext;
  readonly #journal: Journal;
  readonly #holder: Holder;
  readonly #server: ServerRef | null;
  #bound: Promise<HandRef> | null = null;
  #placed: Placed | null = null;
  #vaults: Placed["vaults"] = { ids: [], isAlone: false };

  /** `server`: null for the sandbox. */
  constructor(context: LeaseContext, journal: Journal, server: ServerRef | null) {
    this.#context = context;
    this.#journal = journal;
    this.#server = server;
    this.#holder = { session: context.lease.id, fence: context.lease.fence };
  }

  get holder(): Holder {
    return this.#holder;
  }

  /** What the log says of it. */
  get known(): BoundHand | null {
    const { view } = this.#journal;
    return this.#server === null ? view.hand : view.servers.handOf(this.#server);
  }

  /** From here on the hand is to be this one; `isOld`: what is asked now was asked before, and is asked again where that was. B5 */
  follow(placed: Placed, isOld = false): void {
    this.#vaults = placed.vaults;
    if (isOld) return;
    this.#placed = placed;
    if (this.#isOther) this.#bound = null;
  }

  /** What lets the hand host use vaults for it: the hand's own first, then the session's. A shared connection has the hand's alone. */
  grant(): Promise<string | undefined> {
    const { ids, isAlone } = this.#vaults;
    return this.#context.handGrant(isAlone ? ids : [...new Set([...ids, ...this.#journal.view.vaultIds])]);
  }

  /** The log's hand is of another registration than is wanted now. */
  get #isOther(): boolean {
    const { view } = this.#journal;
    const bound = this.#server === null ? null : view.servers.handOf(this.#server);
    return bound !== null && this.#placed !== null && bound.url !== this.#placed.address;
  }

  /** Is there a hand that may have been asked for something? One whose announcement failed is there all the same: the next one asks again. */
  get mayBeBound(): boolean {
    return this.#bound !== null || this.known?.state === "bound";
  }

  /** Announces the fence to the hand that the log names; its answer is awaited by whoever needs the hand. B1 */
  announce(): void {
    const hand = this.known;
    if (hand?.state !== "bound" || this.#bound || this.#isOther) return;
    const ref = { hand: hand.hand, host: hand.host };
    this.#hold(this.#context.hands.announce(this.#holder, ref, this.#context.leaseSignal).then(() => ref));
  }

  /** The hand, provisioned if there is none. Refuses `hand_lost`. B2 B3 */
  ensure(): Promise<HandRef> {
    this.announce();
    return this.#bound ?? this.#hold(this.#provision());
  }

  /** The hand is gone for good, with its files. B4 */
  async lose(): Promise<void> {
    this.#bound = null;
    const hand = this.known;
    if (hand?.state === "bound") await this.#say(hand, "lost", this.#server ? this.#journal.view.servers.handOf(this.#server)?.url : undefined);
  }

  async #provision(): Promise<HandRef> {
    const { hands, leaseSignal } = this.#context;
    const placed = this.#placed;
    const server = this.#server && (placed?.wanted ?? wantedOf(this.#server));
    const wanted: Wanted = server === null ? { environment_id: this.#journal.view.environmentId } : { server };
    const ref = await hands.provision(this.#holder, wanted, leaseSignal);
    await this.#say(ref, "bound", placed?.address);
    return ref;
  }

  async #say({ hand, host }: HandRef, state: "bound" | "lost", address = this.#server?.url ?? ""): Promise<void> {
    const server = this.#server && { name: this.#server.name, url: address };
    await this.#journal.append([{ type: "log.hand", hand, host, state, ...(server ? { server } : {}) }]);
  }

  // A failed attempt is forgotten, so that the next call tries anew.
  #hold(attempt: Promise<HandRef>): Promise<HandRef> {
    this.#bound = attempt;
    attempt.catch(() => {
      if (this.#bound === attempt) this.#bound = null;
    });
    return attempt;
  }
}

function wantedOf({ name, url }: ServerRef): ServerWanted {
  const configured = nameOf(url);
  if (configured !== null) return { name, transport: { type: "configured", server: configured } };
  return { name, transport: { type: "url", url } };
}
