// What nobody owns goes away: folders without a hand, hands whose release did not come to its end, processes of sandboxes that do nothing.
//
//   S1  A folder is removed only if no live hand of the ledger owns it.
//   S2  A failed removal is tried again, soon and at every sweep, also after a restart: the ledger keeps the hand until its folder is gone.
//   S3  A folder goes after everything that may be at work in it: first the sandbox, then what the driver has of it, then the files.

import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import type { Ledger } from "./ledger.ts";
import type { Runner } from "./runner.ts";
import type { SandboxDriver } from "./sandbox.ts";

const SWEEP_MS = 30_000;
/** Until the next sweep when something could not be removed. */
const RETRY_MS = 2_000;
const IDLE_MS = 10 * 60_000;

export interface SweeperOptions {
  readonly ledger: Ledger;
  readonly sandboxes: Map<string, Runner>;
  readonly driver: SandboxDriver;
  /** Where the hands' folders are. */
  readonly root: string;
  readonly log: Logger;
  readonly idleMs?: number;
  /** Something of this hand runs that nobody watched: from now on its sandbox is looked after. */
  readonly adopt: (hand: string) => void;
}

export class Sweeper {
  readonly #options: SweeperOptions;
  /** Folders of no hand that could not be removed yet. */
  readonly #orphans = new Set<string>();
  #timer: NodeJS.Timeout | undefined;
  #isStopped = false;

  constructor(options: SweeperOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { ledger, root, log, driver } = this.#options;
    await mkdir(root, { recursive: true, mode: 0o700 });
    this.#adopt((await driver.sweep?.((hand) => this.#isOwned(hand), true)) ?? []);
    const owned = new Set(ledger.hands().map((row) => row.folder));
    for (const name of await readdir(root)) {
      if (owned.has(name)) continue; // S1
      log.info({ folder: name }, "folder.orphaned");
      this.#orphans.add(name);
    }
    this.#again(await this.sweep());
  }

  /** Also where the engine could not say at the start what ran. */
  #adopt(running: readonly string[]): void {
    for (const hand of running) if (!this.#options.sandboxes.has(hand)) this.#options.adopt(hand);
  }

  stop(): void {
    this.#isStopped = true;
    clearTimeout(this.#timer);
  }

  #again(isClean: boolean): void {
    if (this.#isStopped) return;
    const ms = isClean ? Math.min(SWEEP_MS, this.#options.idleMs ?? IDLE_MS) : RETRY_MS;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(async () => this.#again(await this.sweep()), ms);
    this.#timer.unref();
  }

  #isOwned(hand: string): boolean {
    return this.#options.ledger.hand(hand) !== undefined;
  }

  folderOf(name: string): string {
    return join(this.#options.root, name);
  }

  /** True when nothing is left that should be gone. */
  async sweep(): Promise<boolean> {
    const { ledger, sandboxes, driver, log, idleMs = IDLE_MS } = this.#options;
    let isClean = true;
    const released = ledger.hands().filter((row) => row.state === "releasing" && driver.takes.includes(row.driver));
    for (const { hand } of released) isClean = (await this.remove(hand)) && isClean;
    for (const name of this.#orphans) {
      if (((await driver.remove?.(name)) ?? true) && (await this.#removeFolder(name))) this.#orphans.delete(name);
      else isClean = false; // S2
    }
    const swept = await driver.sweep?.((hand) => this.#isOwned(hand), false);
    if (swept === null) isClean = false;
    this.#adopt(swept ?? []);
    for (const [hand, sandbox] of sandboxes) {
      const since = sandbox.idleSince();
      if (since === null || Date.now() - since < idleMs) continue;
      await sandbox.stop("idle");
      if (sandbox.idleSince() === null) log.info({ hand }, "sandbox.rested");
      else isClean = false;
    }
    return isClean;
  }

  /** Ends a hand's processes, removes its folder, forgets it. False: not all of it could be removed; the next sweep goes on. S2 S3 */
  async remove(hand: string): Promise<boolean> {
    const { ledger, sandboxes, driver, log } = this.#options;
    const row = ledger.hand(hand);
    if (row === undefined) return true;
    // Something of it may be at work where this driver can't see it. S3
    if (!driver.takes.includes(row.driver)) return false;
    await sandboxes.get(hand)?.stop("the hand was given back");
    sandboxes.delete(hand);
    const isGone = ((await driver.remove?.(row.folder)) ?? true) && (await this.#removeFolder(row.folder));
    if (!isGone) {
      if (this.#timer !== undefined) this.#again(false);
      return false;
    }
    await ledger.forget(hand);
    log.info({ hand, sessionId: row.session }, "hand.released");
    return true;
  }

  async #removeFolder(name: string): Promise<boolean> {
    try {
      await rm(this.folderOf(name), { recursive: true, force: true, maxRetries: 3 });
      return true;
    } catch (error) {
      this.#options.log.warn({ folder: name, err: error }, "folder.removal_failed");
      return false;
    }
  }
}
