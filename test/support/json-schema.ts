// Values that fit a JSON Schema, and a judge of whether one does: by the document alone, without the schemas that it was made from.

import fc from "fast-check";
import { z } from "zod";

export type Schema = Readonly<Record<string, unknown>>;
const AsSchema = z.record(z.string(), z.unknown());
const AsSchemas = z.array(AsSchema);

export const isSchema = (value: unknown): value is Schema => typeof value === "object" && value !== null && !Array.isArray(value);

/** A schema with its references replaced by what they refer to; `isStrict`: objects hold nothing that is not named. */
export function inlined(document: Schema, schema: Schema, isStrict = false): Schema {
  const visit = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(visit);
    if (!isSchema(value)) return value;
    if (typeof value.$ref === "string") return visit(follow(document, value.$ref));
    const made = Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, visit(inner)]));
    const isClosed = isStrict && value.type === "object" && isSchema(value.properties) && value.additionalProperties === undefined;
    return isClosed ? { ...made, additionalProperties: false } : made;
  };
  return AsSchema.parse(visit(schema));
}

function follow(document: Schema, ref: string): Schema {
  let at: unknown = document;
  for (const name of ref.replace(/^#\//, "").split("/")) at = isSchema(at) ? at[name] : undefined;
  if (!isSchema(at)) throw new Error(`the document has no ${ref}`);
  return at;
}

/** Says what of a value does not fit; null when it does. */
export function judge(schema: Schema): (value: unknown) => string | null {
  const read = z.fromJSONSchema(schema as Parameters<typeof z.fromJSONSchema>[0]);
  return (value) => {
    const result = read.safeParse(value);
    return result.success ? null : z.prettifyError(result.error);
  };
}

const URLS = ["https://a.example/b", "http://a.example:8080/c?d=e"];
const TEXT_MORE = 24;
const ITEMS_MORE = 2;

/** Values that fit an inlined schema. */
export function arbitraryOf(schema: Schema): fc.Arbitrary<unknown> {
  const forms = schema.anyOf ?? schema.oneOf;
  if (forms !== undefined) return fc.oneof(...AsSchemas.parse(forms).map(arbitraryOf));
  if ("const" in schema) return fc.constant(schema.const);
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum);
  if (Array.isArray(schema.type)) return fc.oneof(...schema.type.map((type) => arbitraryOf({ ...schema, type })));
  switch (schema.type) {
    case "string":
      return text(schema);
    case "integer":
      return fc.integer({ min: numberOf(schema.minimum, 0), max: Math.min(numberOf(schema.maximum, 1000), 2 ** 31 - 1) });
    case "number":
      return fc.double({ noNaN: true, min: numberOf(schema.minimum, 0), max: numberOf(schema.maximum, 1000) });
    case "boolean":
      return fc.boolean();
    case "null":
      return fc.constant(null);
    case "array":
      return array(schema);
    case "object":
      return object(schema);
    default:
      return fc.jsonValue({ maxDepth: 3 });
  }
}

const numberOf = (value: unknown, absent: number): number => (typeof value === "number" ? value : absent);

function text({ pattern, format, minLength, maxLength }: Schema): fc.Arbitrary<string> {
  if (typeof pattern === "string") return fc.stringMatching(new RegExp(pattern));
  if (format === "uri") return fc.constantFrom(...URLS);
  if (format === "date-time") {
    const range = { min: new Date("2000-01-01T00:00:00Z"), max: new Date("2100-01-01T00:00:00Z"), noInvalidDate: true };
    return fc.date(range).map((date) => date.toISOString());
  }
  const least = numberOf(minLength, 0);
  const most = Math.min(numberOf(maxLength, least + TEXT_MORE), least + TEXT_MORE);
  return fc.string({ minLength: least, maxLength: most, unit: fc.constantFrom(...'abcXYZ 019_-.:/é\u4e2d\n"\\') });
}

function array({ items, minItems, maxItems }: Schema): fc.Arbitrary<unknown> {
  const least = numberOf(minItems, 0);
  const most = Math.min(numberOf(maxItems, least + ITEMS_MORE), least + ITEMS_MORE);
  return fc.array(arbitraryOf(isSchema(items) ? items : {}), { minLength: least, maxLength: most });
}

function object(schema: Schema): fc.Arbitrary<unknown> {
  const properties = isSchema(schema.properties) ? Object.entries(schema.properties).filter(([, inner]) => isSchema(inner) && !("not" in inner)) : [];
  const required = Array.isArray(schema.required) ? schema.required.map(String) : [];
  const named = fc.record(Object.fromEntries(properties.map(([name, inner]) => [name, arbitraryOf(AsSchema.parse(inner))])), {
    requiredKeys: required,
  });
  if (!isSchema(schema.additionalProperties)) return named;
  const key = isSchema(schema.propertyNames) ? text(schema.propertyNames) : text({ minLength: 1 });
  const more = fc.dictionary(key, arbitraryOf(schema.additionalProperties), { maxKeys: 3, noNullPrototype: true });
  return fc.tuple(named, more).map(([one, other]) => ({ ...other, ...(one as object) }));
}
