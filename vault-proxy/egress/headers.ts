// The headers of a request and of an answer that pass through: what belongs to one connection stays behind.
//
//   H1  Hop-by-hop headers, those that `connection` names, and a proxy's own credentials never pass.
//   H2  Names and values pass as they are, in their order and number: a list is flat, name and value in turn.

const OF_THE_CONNECTION = new Set([
  "connection",
  "keep-alive",
  "proxy-connection",
  "proxy-authorization",
  "proxy-authenticate",
  "proxy-authentication-info",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "expect",
]);

export type Pair = readonly [name: string, value: string];

/** The pairs of a flat list. */
function pairsOf(raw: readonly string[]): readonly Pair[] {
  return raw.flatMap((name, index) => (index % 2 === 0 ? [[name, raw[index + 1] ?? ""] as const] : []));
}

/** H1 */
export function passing(raw: readonly string[], without: readonly string[] = []): readonly Pair[] {
  const pairs = pairsOf(raw);
  const dropped = new Set(without);
  for (const [name, value] of pairs) {
    if (name.toLowerCase() === "connection") for (const each of value.split(",")) dropped.add(each.trim().toLowerCase());
  }
  return pairs.filter(([name]) => !OF_THE_CONNECTION.has(name.toLowerCase()) && !dropped.has(name.toLowerCase()));
}

export const flat = (pairs: readonly Pair[]): string[] => pairs.flat();

/** Every value of a header. */
export function valuesOf(raw: readonly string[], name: string): readonly string[] {
  return pairsOf(raw).flatMap(([each, value]) => (each.toLowerCase() === name ? [value] : []));
}
