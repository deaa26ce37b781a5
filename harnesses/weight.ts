// What a parsed JSON value takes up in memory: an estimate that is rather too high, for bounds.

const CHARACTER = 2;
const VALUE = 16;
const CONTAINER = 48;

/** In bytes. Without recursion: a value may be nested as deep as JSON allows. */
export function weightOf(value: unknown): number {
  let bytes = 0;
  const left: unknown[] = [value];
  while (left.length > 0) {
    const next = left.pop();
    bytes += VALUE;
    if (typeof next === "string") bytes += next.length * CHARACTER;
    if (typeof next !== "object" || next === null) continue;
    bytes += CONTAINER;
    for (const one of Object.values(next)) left.push(one);
  }
  return bytes;
}
