// Chance that can be had again: every random test draws from one seed, prints it first and takes it from SEED.

import { randomInt } from "node:crypto";

export interface Chance {
  readonly seed: number;
  /** In [0, 1). */
  next(): number;
  /** A whole number in [from, to]. */
  between(from: number, to: number): number;
  pick<T>(items: readonly [T, ...T[]]): T;
}

/** Chance from SEED, or from a fresh seed; says which on stderr, so that a red run can be had again. */
export function seeded(what: string): Chance {
  const given = process.env.SEED;
  const seed = given === undefined ? randomInt(2 ** 31) : Number(given);
  if (!Number.isInteger(seed)) throw new Error(`SEED is not a whole number: ${given}`);
  process.stderr.write(`${what}: SEED=${seed}\n`);
  return chanceOf(seed);
}

/** mulberry32: small, good enough to draw moments and victims. */
export function chanceOf(seed: number): Chance {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    seed,
    next,
    between: (from, to) => from + Math.floor(next() * (to - from + 1)),
    pick: (items) => items[Math.floor(next() * items.length)] ?? items[0],
  };
}
