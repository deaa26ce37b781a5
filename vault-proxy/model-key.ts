// The model key: from a file that may change, or from the environment as it was at the start.
//
//   K1  The key lives in this process's memory and in the header that opens the model's door, nowhere else: no log, no error, no answer.

import { Scrubber } from "./scrub.ts";
import { WatchedFile } from "./watched-file.ts";

/** No key is longer; a longer file is not a key. */
const KEY_CHARS_MAX = 4_096;

export interface ModelKey {
  /** What goes into `x-api-key`. */
  readonly value: string;
  readonly scrubber: Scrubber;
}

export interface ModelKeys {
  /** The key now; null if none is set. A file is read again when it has changed. */
  current(): ModelKey | null;
}

/** The one key that was in the environment. */
export function fixedKey(value: string | null): ModelKeys {
  const key = value === null ? null : toKey(value);
  return { current: () => key };
}

/** The key in a file. `warn` hears when it can't be read and when others may read it too. */
export function keyFile(path: string, warn: (reason: string) => void): ModelKeys {
  const parse = (text: string, mode: number): ModelKey => {
    if ((mode & 0o077) !== 0) warn("readable by group or others; chmod 600 it");
    return toKey(text.trim());
  };
  const file = new WatchedFile(path, parse, warn);
  return { current: () => file.read() };
}

function toKey(value: string): ModelKey {
  if (value === "") throw new Error("holds no key");
  if (value.length > KEY_CHARS_MAX || !/^[\x21-\x7e]+$/.test(value)) throw new Error("is not one line of printable characters");
  return { value, scrubber: new Scrubber(value) };
}
