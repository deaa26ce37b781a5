// What a careless or ill-meaning client puts where something else is expected: values, texts, and changes to a good body.

import fc from "fast-check";

const DEEP = 200;
const LONG = 200_000;

function nested(depth: number): unknown {
  let value: unknown = 1;
  for (let at = 0; at < depth; at++) value = at % 2 === 0 ? [value] : { a: value };
  return value;
}

const parsed = (text: string): unknown => JSON.parse(text);

const TEXTS = [
  "",
  " ",
  "\u0000",
  "a\u0000b",
  "\ud800",
  "x\udfffy",
  "\u202e\ufeff",
  "__proto__",
  "constructor",
  "../../etc/passwd",
  "'; DROP TABLE entries; --",
  "%00",
  "null",
  "NaN",
  "page_e30",
  "2026-02-30T25:61:61Z",
  "𝒳".repeat(300),
  "x".repeat(2000),
];

export const oddText: fc.Arbitrary<string> = fc.oneof(
  { weight: 8, arbitrary: fc.constantFrom(...TEXTS) },
  { weight: 4, arbitrary: fc.string({ unit: "binary", maxLength: 40 }) },
  { weight: 1, arbitrary: fc.constant("y".repeat(LONG)) },
);

const oddValue: fc.Arbitrary<unknown> = fc.oneof(
  oddText,
  fc.constantFrom<unknown>(
    null,
    true,
    false,
    0,
    -1,
    1.5,
    1e308,
    Number.MAX_SAFE_INTEGER + 1,
    [],
    {},
    [[]],
    [null],
    { type: null },
    { type: "x" },
    nested(8),
    nested(DEEP),
    parsed('{"__proto__":{"isAdmin":true}}'),
    parsed('{"constructor":{"prototype":{"a":1}}}'),
    parsed('{"toString":1,"hasOwnProperty":2,"length":3}'),
    Array.from({ length: 1001 }, () => "z"),
    Object.fromEntries(Array.from({ length: 300 }, (_, at) => [`k${at}`, "v"])),
  ),
  fc.jsonValue({ maxDepth: 4 }),
);

const oddName = fc.oneof(
  fc.constantFrom("bogus", "id", "processed_at", "__proto__", "constructor", "type", "", "a.b", "\u0000"),
  fc.string({ maxLength: 10 }),
);

export interface Change {
  /** Steps to a place: each picks among what is there. */
  readonly place: readonly number[];
  readonly act: "swap" | "remove" | "double" | "add" | "nothing";
  readonly odd: unknown;
  readonly name: string;
}

export const change: fc.Arbitrary<Change> = fc.record({
  place: fc.array(fc.nat(12), { maxLength: 7 }),
  act: fc.constantFrom("swap", "remove", "double", "add", "nothing"),
  odd: oddValue,
  name: oddName,
});

/** A value with one change somewhere in it. */
export function changedBy(value: unknown, { place, act, odd, name }: Change): unknown {
  const entries = typeof value === "object" && value !== null ? Object.entries(value) : [];
  const [step, ...rest] = place;
  const picked = step === undefined ? undefined : entries[step % entries.length];
  if (!picked) return act === "add" ? withField(value, name, odd) : act === "nothing" ? value : odd;
  const [at, inner] = picked;
  const isHere = rest.length === 0;
  if (Array.isArray(value)) {
    if (isHere && act === "remove") return value.toSpliced(Number(at), 1);
    if (isHere && act === "double") return [...value, inner];
    return value.with(Number(at), changedBy(inner, { place: rest, act, odd, name }));
  }
  const others = entries.filter(([each]) => each !== at);
  if (isHere && act === "remove") return made(others);
  return made([...others, [at, changedBy(inner, { place: rest, act, odd, name })]]);
}

/** `__proto__`, too, becomes a field like any other. */
function made(entries: readonly (readonly [string, unknown])[]): unknown {
  const object: Record<string, unknown> = {};
  for (const [name, value] of entries) Object.defineProperty(object, name, { value, enumerable: true, configurable: true, writable: true });
  return object;
}

function withField(value: unknown, name: string, odd: unknown): unknown {
  if (Array.isArray(value)) return [...value, odd];
  return typeof value === "object" && value !== null ? made([...Object.entries(value), [name, odd]]) : odd;
}
