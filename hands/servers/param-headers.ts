// What a stateless server wants to see of a call's arguments in headers: `x-mcp-header` of its schema says which, `Mcp-Param-*` carries them.
//
//   X1  A mark is good on a string, an integer or a boolean that is reached from the top through `properties` alone, with a name that a header can have
//       and no other mark has, whatever its case. One bad mark makes the tool unusable: nobody could say what its server would read from a call.

const MARK = "x-mcp-header";
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;
const TYPES: ReadonlySet<unknown> = new Set(["string", "integer", "boolean"]);
const PLAIN = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/;
const VALUE_BYTES_MAX = 8_192;
const MARKS_MAX = 100;

export interface Mark {
  /** The names of properties, from the top. */
  readonly path: readonly string[];
  readonly header: string;
}

/** What is wrong with a schema's marks; null: nothing. X1 */
export function faultIn(schema: unknown): string | null {
  const marks = marksIn(schema);
  return typeof marks === "string" ? marks : null;
}

/** Which arguments are repeated in which headers; none where one mark is bad. */
export function marksOf(schema: unknown): readonly Mark[] {
  const marks = marksIn(schema);
  return typeof marks === "string" ? [] : marks;
}

/** What stands in a call's arguments at a mark's place. */
export const argumentAt = (input: unknown, { path }: Mark): unknown =>
  path.reduce<unknown>((at, name) => (isObject(at) && Object.hasOwn(at, name) ? at[name] : undefined), input);

export function headersOf(schema: unknown, input: unknown): Readonly<Record<string, string>> {
  return Object.fromEntries(
    marksOf(schema).flatMap((mark): [string, string][] => {
      const { header } = mark;
      const value = argumentAt(input, mark);
      if (!["string", "number", "boolean"].includes(typeof value)) return [];
      // A number that JavaScript does not hold exactly is not told: another one would be.
      if (Number.isInteger(value) && !Number.isSafeInteger(value)) return [];
      const text = String(value);
      return Buffer.byteLength(text) > VALUE_BYTES_MAX ? [] : [[`Mcp-Param-${header}`, encoded(text)]];
    }),
  );
}

const known = new WeakMap<object, readonly Mark[] | string>();

/** The marks, or what is wrong with one; looked for once in each schema. Its depth was looked at before. */
function marksIn(schema: unknown): readonly Mark[] | string {
  if (typeof schema !== "object" || schema === null) return [];
  const marks = known.get(schema) ?? readMarks(schema);
  known.set(schema, marks);
  return marks;
}

function readMarks(schema: object): readonly Mark[] | string {
  const marks: Mark[] = [];
  const names = new Set<string>();
  /** `path` null: what stands here is not reached through `properties` alone. */
  const visit = (node: unknown, path: readonly string[] | null): string | null => {
    if (Array.isArray(node)) return first(node, (inner) => visit(inner, null));
    if (!isObject(node)) return null;
    if (Object.hasOwn(node, MARK)) {
      const header = node[MARK];
      if (path === null || path.length === 0) return `its ${MARK} stands where no argument does`;
      if (typeof header !== "string" || !HEADER_NAME.test(header)) return `its ${MARK} is no name of a header`;
      if (!TYPES.has(node.type)) return `its ${MARK} is on something else than a string, an integer or a boolean`;
      if (names.has(header.toLowerCase())) return `its ${MARK} is there twice`;
      if (names.size >= MARKS_MAX) return `it has more than ${MARKS_MAX} of ${MARK}`;
      names.add(header.toLowerCase());
      marks.push({ path, header });
    }
    return first(Object.entries(node), ([name, inner]) => {
      if (DATA.has(name)) return null;
      if (!NAMED.has(name) || !isObject(inner)) return visit(inner, null);
      return first(Object.entries(inner), ([key, each]) => visit(each, name === "properties" && path !== null ? [...path, key] : null));
    });
  };
  return visit(schema, []) ?? marks;
}

/** Keywords whose values are schemas by name: the names are no keywords. */
const NAMED: ReadonlySet<string> = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);
/** Keywords whose values are no schemas: what looks like a mark in there is none. */
const DATA: ReadonlySet<string> = new Set(["const", "enum", "default", "examples", "required"]);

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> => typeof value === "object" && value !== null && !Array.isArray(value);

function first<T>(each: readonly T[], look: (item: T) => string | null): string | null {
  for (const item of each) {
    const found = look(item);
    if (found !== null) return found;
  }
  return null;
}

/** What a header can't carry as it is goes in base64, said so. */
export function encoded(text: string): string {
  if (PLAIN.test(text) && !text.startsWith("=?base64?")) return text;
  return `=?base64?${Buffer.from(text, "utf8").toString("base64")}?=`;
}
