// What nobody owns goes away: folders without a hand, hands whose release did not come to its end, processes of sandboxes that do nothing.
//
//   S1  A folder is removed only if no live hand of the ledger owns it.
//   S2  A failed removal is tried again at every sweep, also after a restart: the ledger keeps the hand until its folder is gone.

import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "pino";
import type { Ledger } from "./ledger.ts";
import type { Sandbox } from "./sandbox.ts";

const SWEEP_MS = 30_000;
const IDLE_MS = 10 * 60_000;

export interface SweeperOptions {
  readonly ledger: Ledger;
  readonly sandboxes: Map<string, Sandbox>;
  /** Where the hands' folders are. */
  readonly root: string;
  readonly log: Logger;
  readonly idleMs?: number;
}

export class Sweeper {
  readonly #options: SweeperOptions;
  #timer: NodeJS.Timeout | undefined;
  #sweep: Promise<void> | undefined;

  constructor(options: SweeperOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { ledger, root, log } = this.#options;
    await mkdir(root, { recursive: true, mode: 0o700 });
    const owned = new Set(ledger.hands().map((row) => row.folder));
    for (const name of await readdir(root)) {
      if (owned.has(name)) continue; // S1
      log.info({ folder: name }, "folder.orphaned");
      await this.#removeFolder(name);
    }
    await this.sweep();
    this.#timer = setInterval(() => {
      this.#sweep ??= this.sweep().finally(() => {
        this.#sweep = undefined;
      });
    }, SWEEP_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  folderOf(name: string): string {
    return join(this.#options.root, name);
  }

  async sweep(): Promise<void> {
    const { ledger, sandboxes, log, idleMs = IDLE_MS } = this.#options;
    for (const row of ledger.hands()) if (row.state === "releasing") await this.remove(row.hand);
    for (const [hand, sandbox] of sandboxes) {
      const since = sandbox.idleSince();
      if (since === null || Date.now() - since < idleMs) continue;
      await sandbox.stop("idle");
      log.info({ hand }, "sandbox.rested");
    }
  }

  /** Ends a hand's processes, removes its folder, forgets it. A folder that does not go away stays for the next sweep. S2 */
  async remove(hand: string): Promise<void> {
    const { ledger, sandboxes, log } = this.#options;
    const row = ledger.hand(hand);
    if (row === undefined) return;
    await sandboxes.get(hand)?.stop("the hand was given back");
    sandboxes.delete(hand);
    if (!(await this.#removeFolder(row.folder))) return;
    await ledger.forget(hand);
    log.info({ hand, sessionId: row.session }, "hand.released");
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
