// What a stateless server wants to see of a call's arguments in headers: `x-mcp-header` of its schema says which, `Mcp-Param-*` carries them.
//
//   P1  A name is declared by a property that is reached by properties alone and holds a string, a whole number or a boolean; it is a header's name, and
//       no other property of the tool has it. A tool that declares one otherwise is not used: its calls could not be made as its server wants them.
//   P2  What a header can't carry as it is goes in base64, said so.

import { SCHEMA_DEPTH_MAX } from "./limits.ts";

const KEYWORD = "x-mcp-header";
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const KINDS = ["string", "integer", "boolean"];
const PLAIN = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/;
const NAME_CHARS_MAX = 100;
const SHOWN_CHARS_MAX = 80;

interface Declared {
  readonly path: readonly string[];
  readonly header: string;
}
type Declarations = { readonly type: "valid"; readonly all: readonly Declared[] } | { readonly type: "invalid"; readonly says: string };

/** Why a tool with this input schema can't be called over HTTP; null: it can. P1 */
export function headerFault(schema: unknown): string | null {
  const declared = declarationsIn(schema);
  return declared.type === "invalid" ? declared.says : null;
}

/** The headers of a call with this input; none for what is absent, null or of no kind that a header holds. P1 P2 */
export function headersOf(schema: unknown, input: unknown): Readonly<Record<string, string>> {
  const declared = declarationsIn(schema);
  if (declared.type === "invalid") return {};
  return Object.fromEntries(
    declared.all.flatMap(({ path, header }): [string, string][] => {
      const text = textOf(path.reduce<unknown>((at, name) => (isObject(at) && Object.hasOwn(at, name) ? at[name] : undefined), input));
      return text === null ? [] : [[`Mcp-Param-${header}`, encoded(text)]];
    }),
  );
}

function declarationsIn(schema: unknown): Declarations {
  const all: Declared[] = [];
  const taken = new Set<string>();
  const fault = visit(schema, []);
  return fault === null ? { type: "valid", all } : { type: "invalid", says: fault };

  function visit(at: unknown, path: readonly string[]): string | null {
    // Deeper ones are left out before.
    if (!isObject(at) || path.length > SCHEMA_DEPTH_MAX) return null;
    if (Object.hasOwn(at, KEYWORD)) {
      const fault = path.length === 0 ? `the root of its input schema has ${KEYWORD}` : declare(at, path);
      if (fault !== null) return fault;
    }
    for (const [word, inner] of Object.entries(at)) {
      if (word === KEYWORD) continue;
      const isReached = word === "properties" && isObject(inner);
      for (const [name, property] of isReached ? Object.entries(inner) : []) {
        const fault = visit(property, [...path, name]);
        if (fault !== null) return fault;
      }
      if (!isReached && SCHEMAS.has(word) && isWithin(inner)) return `its input schema has ${KEYWORD} under ${word}`;
    }
    return null;
  }

  function declare(at: Readonly<Record<string, unknown>>, path: readonly string[]): string | null {
    const header = at[KEYWORD];
    const property = JSON.stringify(path.join(".").slice(0, SHOWN_CHARS_MAX));
    if (typeof header !== "string" || header.length > NAME_CHARS_MAX || !HEADER_NAME.test(header))
      return `${KEYWORD} of ${property} is no name of a header`;
    if (typeof at.type !== "string" || !KINDS.includes(at.type)) return `${KEYWORD} of ${property} is for a string, an integer or a boolean alone`;
    if (taken.has(header.toLowerCase())) return `${KEYWORD} of ${property} names a header that another property has`;
    taken.add(header.toLowerCase());
    all.push({ path, header });
    return null;
  }
}

/** Words of a schema whose schemas are not reached by properties alone. */
const SCHEMAS = new Set([
  ...["items", "prefixItems", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames", "patternProperties"],
  ...["dependentSchemas", "oneOf", "anyOf", "allOf", "not", "if", "then", "else", "$defs", "definitions"],
]);

/** Does the keyword stand anywhere in here? */
function isWithin(at: unknown, depth = 0): boolean {
  if (typeof at !== "object" || at === null || depth > SCHEMA_DEPTH_MAX) return false;
  return (!Array.isArray(at) && Object.hasOwn(at, KEYWORD)) || Object.values(at).some((inner) => isWithin(inner, depth + 1));
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> => typeof value === "object" && value !== null && !Array.isArray(value);

/** A number that JavaScript does not hold exactly is not told: another one would be. */
function textOf(value: unknown): string | null {
  if (typeof value === "string") return value.toWellFormed();
  if (typeof value === "boolean") return String(value);
  return typeof value === "number" && (Number.isSafeInteger(value) || !Number.isInteger(value)) && Number.isFinite(value) ? String(value) : null;
}

/** P2 */
function encoded(text: string): string {
  if (PLAIN.test(text) && !text.startsWith("=?base64?")) return text;
  return `=?base64?${Buffer.from(text, "utf8").toString("base64")}?=`;
}
