// The hand host: the hands of one machine, what they run in, and who holds them. mcp.ts is its door.
//
//   D1  A session has at most one live hand here; its folder is named by the hand, so a hand that is going away never meets the next one.
//   D2  A hand is forgotten only when its folder is gone; until then the sweeper tries again.
//   D3  After a restart every hand of the ledger is there again with its files (B1); nothing that ran goes on, and M4 says so.

import { join } from "node:path";
import type { Logger } from "pino";
import { mint, type SessionId } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import { Calls } from "./calls.ts";
import type { HandRef, Holder, Outcome, ToolUse } from "./hand.ts";
import type { HandRow, Ledger } from "./ledger.ts";
import type { Sandbox, SandboxDriver } from "./sandbox.ts";
import { Sweeper } from "./sweeper.ts";

const HANDS_MAX = 10_000;

export interface HandHostOptions {
  readonly ledger: Ledger;
  readonly driver: SandboxDriver;
  readonly dataDir: string;
  readonly log: Logger;
  /** How long (ms) a sandbox may do nothing before its processes are ended. */
  readonly idleMs?: number;
}

export class HandHost {
  readonly #ledger: Ledger;
  readonly #driver: SandboxDriver;
  readonly #log: Logger;
  readonly #calls: Calls;
  readonly #sandboxes = new Map<string, Sandbox>();
  readonly #adopted: ReadonlySet<string>;
  readonly #sweeper: Sweeper;

  constructor({ ledger, driver, dataDir, log, idleMs }: HandHostOptions) {
    this.#ledger = ledger;
    this.#driver = driver;
    this.#log = log;
    this.#adopted = new Set(ledger.hands().map((row) => row.hand));
    this.#calls = new Calls(ledger, (row) => this.#sandbox(row));
    this.#sweeper = new Sweeper({
      ledger,
      sandboxes: this.#sandboxes,
      driver,
      root: join(dataDir, "sandboxes"),
      log,
      // What still runs of it is watched from now on, so that it ends when it stays idle.
      adopt: (hand) => {
        const row = ledger.hand(hand);
        if (row !== undefined) this.#sandbox(row);
      },
      ...(idleMs === undefined ? {} : { idleMs }),
    });
  }

  /** Removes what belongs to nobody and starts the sweeper. */
  async start(): Promise<void> {
    await this.#sweeper.start();
    this.#log.info({ hands: this.#ledger.hands().length, boot: this.#ledger.boot }, "hands.adopted");
  }

  identity(): { readonly id: string; readonly boot: number } {
    return { id: this.#ledger.hostId, boot: this.#ledger.boot };
  }

  /** D1 */
  async provision(holder: Holder): Promise<HandRef> {
    const known = this.#ledger.handOf(holder.session);
    if (known !== undefined) await this.#calls.announce(known.hand, holder);
    const hand = known?.hand ?? (await this.#make(holder));
    return { hand, host: this.#ledger.hostId };
  }

  announce(hand: string, holder: Holder): Promise<void> {
    return this.#calls.announce(hand, holder);
  }

  async transfer(hand: string, holder: Holder, to: Holder): Promise<void> {
    await this.#calls.announce(hand, holder);
    await this.#ledger.setHolder(hand, to);
  }

  /** Without a holder: a client that uses the hand directly, on behalf of whoever holds it. */
  async execute(hand: string, holder: Holder | undefined, use: ToolUse, mayRerun: boolean): Promise<Outcome> {
    const started = performance.now();
    const outcome = await this.#calls.execute(hand, holder ?? this.#holderOf(hand), use, mayRerun);
    this.#log.info({ hand, toolUseId: use.id, tool: use.name, outcome: outcome.type, ms: Math.round(performance.now() - started) }, "tool.answered");
    return outcome;
  }

  cancel(hand: string, holder: Holder, toolUseId: string): Promise<Outcome> {
    return this.#calls.cancel(hand, holder, toolUseId, "it was cancelled");
  }

  async settled(hand: string, holder: Holder, toolUseIds: readonly string[]): Promise<void> {
    await this.#calls.announce(hand, holder);
    await this.#ledger.settled(hand, toolUseIds);
  }

  /** Files and processes of a session's hands go. D2 */
  async release(session: SessionId): Promise<void> {
    const rows = this.#ledger.hands().filter((row) => row.session === session);
    for (const row of rows) {
      const ended = this.#calls.end([row], "the hand was given back");
      await this.#ledger.markReleasing(row.hand);
      await ended;
      await this.#sweeper.remove(row.hand);
    }
  }

  instances(): readonly { readonly hand: string; readonly session: SessionId }[] {
    return this.#ledger.hands().map(({ hand, session }) => ({ hand, session }));
  }

  /** Ends every call as failed, durably, and every sandbox. */
  async stop(): Promise<void> {
    this.#calls.close();
    this.#sweeper.stop();
    await this.#calls.end(this.#ledger.hands(), "the hand host was shut down");
    await Promise.all([...this.#sandboxes.values()].map((sandbox) => sandbox.stop("the hand host was shut down")));
    await this.#ledger.close();
  }

  async #make(holder: Holder): Promise<string> {
    if (this.#ledger.hands().length >= HANDS_MAX) throw new Refusal("store_busy", "The hand host has as many hands as it can hold.");
    const hand = mint("hand");
    const row: HandRow = {
      hand,
      session: holder.session,
      driver: this.#driver.name,
      folder: hand,
      created: Date.now(),
      holder: holder.session,
      fence: holder.fence,
      state: "live",
    };
    await this.#ledger.addHand(row);
    this.#sandbox(row);
    this.#log.info({ hand, sessionId: holder.session, fence: holder.fence, driver: row.driver }, "hand.provisioned");
    return hand;
  }

  #sandbox(row: HandRow): Sandbox {
    const open = this.#sandboxes.get(row.hand) ?? this.#open(row);
    this.#sandboxes.set(row.hand, open);
    return open;
  }

  #open(row: HandRow): Sandbox {
    if (!this.#driver.takes.includes(row.driver)) return closedSandbox(row.driver);
    return this.#driver.open(this.#sweeper.folderOf(row.folder), this.#adopted.has(row.hand), row.session);
  }

  #holderOf(hand: string): Holder {
    const row = this.#ledger.hand(hand);
    if (row === undefined) throw new Refusal("hand_lost", "The hand is gone.");
    return { session: row.holder, fence: row.fence };
  }
}

/** For a hand of another kind of sandbox than this host has now: its files are kept, and nothing runs. */
function closedSandbox(driver: string): Sandbox {
  const reason = `the hand is a ${driver} sandbox, and the hand host could not use ${driver} when it started`;
  return { run: async () => ({ type: "failed", reason }), cancel() {}, stop: async () => {}, idleSince: () => null };
}
