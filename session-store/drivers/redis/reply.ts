// Reads what Redis answers. A reply of another shape than the step's header says is a bug, of ours or of what poses as Redis.

export function text(reply: unknown): string {
  if (typeof reply === "string") return reply;
  if (typeof reply === "number") return String(reply);
  throw new TypeError(`Redis answered ${typeof reply}, not text`);
}

export function whole(reply: unknown): number {
  const value = typeof reply === "string" && reply !== "" ? Number(reply) : reply;
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new TypeError(`Redis answered ${typeof reply}, not a number`);
}

export function list(reply: unknown): readonly unknown[] {
  if (Array.isArray(reply)) return reply;
  throw new TypeError(`Redis answered ${typeof reply}, not a list`);
}

/** Field, value, field, value … as a map. */
export function pairs(reply: unknown): ReadonlyMap<string, string> {
  const flat = list(reply);
  const map = new Map<string, string>();
  for (let index = 0; index < flat.length; index += 2) map.set(text(flat[index]), text(flat[index + 1]));
  return map;
}
