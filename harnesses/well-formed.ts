// Every string that reaches the log is well-formed Unicode: a lone half of a pair is replaced.

/** A copy with every string well-formed, keys too; the value itself if nothing had to change. */
export function wellFormed<T>(value: T): T {
  return isWellFormed(value) ? value : (repaired(value) as T);
}

function isWellFormed(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (Array.isArray(value)) return value.every(isWellFormed);
  if (value === null || typeof value !== "object") return true;
  return Object.entries(value).every(([key, inner]) => key.isWellFormed() && isWellFormed(inner));
}

function repaired(value: unknown): unknown {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map(repaired);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key.toWellFormed(), repaired(inner)]));
}
