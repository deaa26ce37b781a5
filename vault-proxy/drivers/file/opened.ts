// Records that were opened lately: believed for as long as their files are the ones that they were read from.
//
//   K1  Each write of ours says so, and nothing that was read before it is believed. Beside that the file is looked at once in LOOK_MS (which one it is,
//       its times, its length), so that what somebody else did to it shows. One that was changed a moment ago is not believed: clocks of file systems
//       are coarse.
//   K2  At most BYTES_MAX of text. What nobody asked for within twice TURN_MS is forgotten: no secret lies here for longer than it is in use.

import { statSync } from "node:fs";
import type { Opened } from "../../store.ts";

const BYTES_MAX = 16 * 1024 * 1024;
const TURN_MS = 60_000;
const YOUNG_MS = 100;
const LOOK_MS = 1_000;

interface Entry {
  readonly stamp: string;
  readonly writes: number;
  lookedAt: number;
  readonly opened: Opened;
  readonly bytes: number;
}

export class OpenedRecords {
  #lately = new Map<string, Entry>();
  #before = new Map<string, Entry>();
  #bytes = 0;
  #writes = 0;
  #timer: NodeJS.Timeout | null = null;

  /** Which file a path names now; null: none, or one that can't be believed yet. Asked before the file is read. K1 */
  stampOf(path: string): string | null {
    let found: ReturnType<typeof statOf>;
    try {
      found = statOf(path);
    } catch {
      // The reading itself will say what is wrong.
      return null;
    }
    if (found === undefined || Date.now() - Number(found.ctimeMs) < YOUNG_MS) return null;
    return `${this.#writes} ${found.dev} ${found.ino} ${found.ctimeNs} ${found.mtimeNs} ${found.size}`;
  }

  get(path: string): Opened | null {
    const entry = this.#lately.get(path) ?? this.#before.get(path);
    if (!entry) return null;
    const now = performance.now();
    const isLookedAt = entry.writes === this.#writes && now - entry.lookedAt < LOOK_MS;
    if (!isLookedAt && entry.stamp !== this.stampOf(path)) {
      this.#forget(path);
      return null;
    }
    if (!isLookedAt) entry.lookedAt = now;
    if (this.#before.delete(path)) this.#lately.set(path, entry);
    return entry.opened;
  }

  keep(path: string, stamp: string | null, opened: Opened, bytes: number): void {
    this.#forget(path);
    // A write that came while the file was read may have made this the record before it.
    if (stamp === null || !stamp.startsWith(`${this.#writes} `) || this.#bytes + bytes > BYTES_MAX) return;
    this.#bytes += bytes;
    this.#lately.set(path, { stamp, opened, bytes, writes: this.#writes, lookedAt: performance.now() });
    this.#timer ??= setInterval(() => this.#turn(), TURN_MS).unref();
  }

  /** A record was written or removed. K1 */
  changed(path: string): void {
    this.#writes += 1;
    this.#forget(path);
  }

  clear(): void {
    this.#lately.clear();
    this.#turn();
    this.#turn();
  }

  /** K2 */
  #turn(): void {
    this.#before = this.#lately;
    this.#lately = new Map();
    this.#bytes = 0;
    for (const { bytes } of this.#before.values()) this.#bytes += bytes;
    if (this.#before.size > 0 || !this.#timer) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }

  #forget(path: string): void {
    for (const entries of [this.#lately, this.#before]) {
      this.#bytes -= entries.get(path)?.bytes ?? 0;
      entries.delete(path);
    }
  }
}

const statOf = (path: string) => statSync(path, { bigint: true, throwIfNoEntry: false });
