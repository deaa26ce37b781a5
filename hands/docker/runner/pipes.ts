// Real pipes for a command's output. Node's own pipes to a child are sockets, which can't be opened again by their names in /dev.
//
//   Two named pipes are made once and then known by nobody else: each command has new ends of them, opened after the last one's were drained.

import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, constants, openSync, unlinkSync } from "node:fs";
import { promisify } from "node:util";

const { O_NONBLOCK, O_RDONLY, O_WRONLY } = constants;

export interface Pipe {
  readonly read: number;
  readonly write: number;
}

export class Pipes {
  /** Held open and never read: the way to the pipes. */
  #kept: Promise<readonly [number, number]> | undefined;

  /** New ends of both. */
  async open(): Promise<readonly [Pipe, Pipe]> {
    this.#kept ??= makePipes();
    try {
      const [out, err] = await this.#kept;
      return [endsOf(out), endsOf(err)];
    } catch (error) {
      this.#kept = undefined;
      throw error;
    }
  }

  /** Somebody may still write to them: others are made for the next command. */
  discard(): void {
    this.#kept
      ?.then((kept) => {
        for (const fd of kept) closeSync(fd);
      })
      .catch(() => {});
    this.#kept = undefined;
  }
}

async function makePipes(): Promise<readonly [number, number]> {
  const names = ["out", "err"].map((name) => `/tmp/.${randomBytes(8).toString("hex")}.${name}`);
  await promisify(execFile)("mkfifo", ["-m", "600", ...names]);
  const [out, err] = names.map((name) => {
    const fd = openSync(name, O_RDONLY | O_NONBLOCK);
    unlinkSync(name);
    return fd;
  });
  if (out === undefined || err === undefined) throw new Error("no pipes");
  return [out, err];
}

function endsOf(kept: number): Pipe {
  const path = `/proc/self/fd/${kept}`;
  const read = openSync(path, O_RDONLY | O_NONBLOCK);
  try {
    return { read, write: openSync(path, O_WRONLY) };
  } catch (error) {
    closeSync(read);
    throw error;
  }
}
