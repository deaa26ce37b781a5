// A tool's input schema in a form that a model's API takes, or the reason why there is none.
//
//   F1  A pure function of the schema: the same one gives the same form at every start.
//   F2  What can't be said in that form is told in words, so that the model still knows; the server judges the arguments by its own schema anyway.
//   F3  Nothing is ever fetched: a reference to another document is cut off where it stands.

import { DESCRIPTION_CHARS_MAX, SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX } from "./limits.ts";

type Schema = Readonly<Record<string, unknown>>;

interface Accepted {
  readonly type: "accepted";
  readonly schema: Schema;
  /** Goes after the tool's description. */
  readonly words: string;
  /** What was changed; null: it is as the server gave it. */
  readonly keyword: string | null;
}
export type Reading = Accepted | { readonly type: "refused"; readonly keyword: string; readonly says: string };

const COMBINATORS = ["anyOf", "oneOf", "allOf"] as const;
/** At the root, beside combinators: what only a full reader of schemas understands. */
const CONDITIONS = ["if", "then", "else", "not", "dependentSchemas", "dependentRequired", "unevaluatedProperties"] as const;
const PROPERTY = /^[A-Za-z0-9_.-]{1,64}$/;

const isSchema = (value: unknown): value is Schema => typeof value === "object" && value !== null && !Array.isArray(value);
const refused = (keyword: string, says: string): Reading => ({ type: "refused", keyword, says });

export function acceptable(given: unknown): Reading {
  if (given === undefined || given === null)
    return { type: "accepted", schema: { type: "object", properties: {} }, words: "", keyword: "inputSchema" };
  if (!isSchema(given)) return refused("inputSchema", "its input schema is no object");
  if (depthOf(given) > SCHEMA_DEPTH_MAX) return refused("inputSchema", `its input schema is more than ${SCHEMA_DEPTH_MAX} levels deep`);
  if (Buffer.byteLength(JSON.stringify(given)) > SCHEMA_BYTES_MAX)
    return refused("inputSchema", `its input schema has more than ${SCHEMA_BYTES_MAX} bytes`);

  const cut = { count: 0 };
  let schema = withoutRemote(given, cut);
  let keyword: string | null = cut.count > 0 ? "$ref" : null;

  if (typeof schema.$ref === "string") {
    const target = resolved(schema, schema.$ref);
    if (target === null) return refused("$ref", "the root of its input schema refers to what is not in it");
    const { $ref: _, ...beside } = schema;
    schema = { ...target, ...beside };
    keyword = "$ref";
  }
  const { type } = schema;
  const types = Array.isArray(type) ? type : [type];
  if (type !== undefined && !types.includes("object")) return refused("type", `its input schema has the type ${JSON.stringify(type).slice(0, 60)}`);
  if (type !== "object") keyword ??= "type";

  const odd = [...COMBINATORS, ...CONDITIONS].filter((word) => word in schema);
  const words = odd.length === 0 ? "" : said(Object.fromEntries(odd.map((word) => [word, schema[word]])));
  const merged = odd.length === 0 ? schema : flattened(schema);
  const properties = isSchema(merged.properties) ? merged.properties : {};
  const bad = Object.keys(properties).find((name) => !PROPERTY.test(name));
  if (bad !== undefined) return refused("properties", `its input has a property with the name ${JSON.stringify(bad.slice(0, 80))}`);

  const required = Array.isArray(merged.required) ? merged.required.filter((name) => typeof name === "string") : [];
  const { required: _, ...rest } = merged;
  const form = { ...rest, type: "object", properties, ...(required.length > 0 ? { required } : {}) };
  return { type: "accepted", schema: form, words, keyword: odd[0] ?? keyword };
}

/** The root without its combinators: every property of every branch is offered, and only what all of them want is required. */
function flattened(schema: Schema): Schema {
  const rest = Object.fromEntries(Object.entries(schema).filter(([word]) => ![...COMBINATORS, ...CONDITIONS].some((odd) => odd === word)));
  let properties: Schema = isSchema(rest.properties) ? rest.properties : {};
  const required = new Set(namesIn(rest.required));
  for (const word of COMBINATORS) {
    const given = schema[word];
    if (!Array.isArray(given)) continue;
    const branches = given.filter(isSchema).map((branch) => (typeof branch.$ref === "string" ? (resolved(schema, branch.$ref) ?? {}) : branch));
    for (const branch of branches) if (isSchema(branch.properties)) properties = { ...branch.properties, ...properties };
    const wants = branches.map((branch) => namesIn(branch.required));
    const all = word === "allOf" ? wants.flat() : (wants[0] ?? []).filter((name) => wants.every((each) => each.includes(name)));
    for (const name of all) required.add(name);
  }
  // A root that allows nothing else knows only its own properties, not those of its branches.
  const { additionalProperties, ...open } = rest;
  return { ...open, ...(additionalProperties === false ? {} : { additionalProperties }), properties, required: [...required] };
}

const namesIn = (value: unknown): readonly string[] => (Array.isArray(value) ? value.filter((name) => typeof name === "string") : []);

/** F2 */
function said(odd: Schema): string {
  const text = JSON.stringify(odd);
  const shown = text.length > DESCRIPTION_CHARS_MAX / 4 ? `${text.slice(0, DESCRIPTION_CHARS_MAX / 4)}…` : text;
  return `The input must also satisfy this part of the tool's JSON schema: ${shown}`;
}

/** What a local reference means; one step, as a root that refers to itself has no end. */
function resolved(root: Schema, reference: string): Schema | null {
  if (!reference.startsWith("#/")) return null;
  let at: unknown = root;
  for (const part of reference.slice(2).split("/")) {
    const name = decoded(part).replaceAll("~1", "/").replaceAll("~0", "~");
    if (!isSchema(at) || !Object.hasOwn(at, name)) return null;
    at = at[name];
  }
  return isSchema(at) && at.$ref === undefined ? at : null;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    // A stray percent sign stands for itself.
    return part;
  }
}

/** F3 */
function withoutRemote(value: Schema, cut: { count: number }): Schema {
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, inner]): [string, unknown][] => {
      const isRemote = (name === "$ref" || name === "$dynamicRef") && typeof inner === "string" && !inner.startsWith("#");
      if (isRemote) cut.count += 1;
      if (isRemote || name === "$schema" || name === "$id") return [];
      if (Array.isArray(inner)) return [[name, inner.map((each: unknown) => (isSchema(each) ? withoutRemote(each, cut) : each))]];
      return [[name, isSchema(inner) ? withoutRemote(inner, cut) : inner]];
    }),
  );
}

/** Without recursion: a deep one must not end the stack before it is judged. */
export function depthOf(value: unknown): number {
  let level: unknown[] = [value];
  for (let depth = 0; ; depth += 1) {
    const next = level.flatMap((one) => (typeof one === "object" && one !== null ? Object.values(one) : []));
    if (next.length === 0 || depth > SCHEMA_DEPTH_MAX) return depth;
    level = next;
  }
}
