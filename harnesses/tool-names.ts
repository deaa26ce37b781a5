// What a server's tool is called towards the model: `mcp__<server>__<tool>`, of letters, digits, `_` and `-`, at most 64 of them.
//
//   N1  A name that was given stays given; the same names given in the same order come out the same.
//   N2  Two tools never share one: whoever comes second gets a number. What is cut keeps a mark of the whole.

import { createHash } from "node:crypto";

const CHARS_MAX = 64;
const MARK_CHARS = 8;
const SERVER_CHARS_MAX = 24;

export interface Named {
  readonly server: string;
  readonly original: string;
}

const legal = (text: string): string => text.replace(/[^A-Za-z0-9_-]/g, "_");

/** How the names of a server's tools begin, where they are not too long for it. */
export const prefixOf = (server: string): string => `mcp__${legal(server)}__`;

/** A name that is not taken. N2 */
export function exposedName({ server, original }: Named, isTaken: (name: string) => boolean): string {
  const whole = `${prefixOf(server)}${legal(original)}`;
  const base = whole.length <= CHARS_MAX ? whole : shortened(server, original);
  for (let count = 1; ; count += 1) {
    const suffix = count === 1 ? "" : `_${count}`;
    const name = `${base.slice(0, CHARS_MAX - suffix.length)}${suffix}`;
    if (!isTaken(name)) return name;
  }
}

function shortened(server: string, original: string): string {
  const mark = createHash("sha256")
    .update(JSON.stringify([server, original]))
    .digest("hex")
    .slice(0, MARK_CHARS);
  const head = `mcp__${legal(server).slice(0, SERVER_CHARS_MAX)}__${legal(original)}`;
  return `${head.slice(0, CHARS_MAX - MARK_CHARS - 1)}_${mark}`;
}
