// The top-level fields of a JSON object, found without rewriting it: what is not touched goes on byte for byte, large numbers and all.
//
//   J1  A key that is there twice is refused: two readers would take two different values.

const SPACE = new Set([0x20, 0x09, 0x0a, 0x0d]);
const [QUOTE, BACKSLASH, COMMA, COLON, OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [0x22, 0x5c, 0x2c, 0x3a, 0x7b, 0x7d, 0x5b, 0x5d];

interface Field {
  readonly key: string;
  /** Of `"key": value`. */
  readonly from: number;
  readonly valueFrom: number;
  readonly to: number;
}

export class JsonObject {
  readonly #bytes: Buffer;
  readonly #fields: readonly Field[];

  private constructor(bytes: Buffer, fields: readonly Field[]) {
    this.#bytes = bytes;
    this.#fields = fields;
  }

  /** Null: the bytes are no object, or a key is there twice. Inner values are only passed over, not checked. J1 */
  static read(bytes: Buffer): JsonObject | null {
    const fields = fieldsOf(bytes);
    return fields === null || new Set(fields.map(({ key }) => key)).size !== fields.length ? null : new JsonObject(bytes, fields);
  }

  /** The value, if it is there and is valid JSON. */
  get(key: string): unknown {
    const field = this.#fields.find((each) => each.key === key);
    if (field === undefined) return undefined;
    try {
      return JSON.parse(this.#bytes.toString("utf8", field.valueFrom, field.to));
    } catch {
      return undefined;
    }
  }

  /** The same object with some fields set (`undefined`: taken out); all others as they came. */
  with(changes: Readonly<Record<string, unknown>>): Buffer {
    const set = Object.entries(changes).filter(([, value]) => value !== undefined);
    const kept = this.#fields.filter(({ key }) => !Object.hasOwn(changes, key)).map(({ from, to }) => this.#bytes.subarray(from, to));
    const pieces = [...set.map(([key, value]) => Buffer.from(`${JSON.stringify(key)}:${JSON.stringify(value)}`)), ...kept];
    return Buffer.concat([Buffer.from("{"), ...pieces.flatMap((piece, at) => (at === 0 ? [piece] : [Buffer.from(","), piece])), Buffer.from("}")]);
  }
}

function fieldsOf(bytes: Buffer): readonly Field[] | null {
  const fields: Field[] = [];
  let at = afterSpace(bytes, 0);
  if (bytes[at] !== OPEN) return null;
  at = afterSpace(bytes, at + 1);
  if (bytes[at] === CLOSE) return isAllSpace(bytes, at + 1) ? fields : null;
  for (;;) {
    const from = at;
    const keyTo = afterString(bytes, at);
    if (keyTo === null) return null;
    const key = keyOf(bytes, from, keyTo);
    at = afterSpace(bytes, keyTo);
    if (key === null || bytes[at] !== COLON) return null;
    const valueFrom = afterSpace(bytes, at + 1);
    const to = afterValue(bytes, valueFrom);
    if (to === null) return null;
    fields.push({ key, from, valueFrom, to });
    at = afterSpace(bytes, to);
    if (bytes[at] === CLOSE) return isAllSpace(bytes, at + 1) ? fields : null;
    if (bytes[at] !== COMMA) return null;
    at = afterSpace(bytes, at + 1);
  }
}

function keyOf(bytes: Buffer, from: number, to: number): string | null {
  try {
    return String(JSON.parse(bytes.toString("utf8", from, to)));
  } catch {
    return null;
  }
}

function afterSpace(bytes: Buffer, from: number): number {
  let at = from;
  while (SPACE.has(bytes[at] ?? 0)) at += 1;
  return at;
}

const isAllSpace = (bytes: Buffer, from: number): boolean => afterSpace(bytes, from) === bytes.length;

/** Null: no string begins here, or it does not end. */
function afterString(bytes: Buffer, from: number): number | null {
  if (bytes[from] !== QUOTE) return null;
  for (let at = from + 1; at < bytes.length; at += 1) {
    if (bytes[at] === BACKSLASH) at += 1;
    else if (bytes[at] === QUOTE) return at + 1;
  }
  return null;
}

function afterValue(bytes: Buffer, from: number): number | null {
  const first = bytes[from];
  if (first === QUOTE) return afterString(bytes, from);
  if (first === OPEN || first === OPEN_LIST) return afterNested(bytes, from);
  let at = from;
  while (at < bytes.length && /[\w.+-]/.test(String.fromCharCode(bytes[at] ?? 0))) at += 1;
  return at === from ? null : at;
}

function afterNested(bytes: Buffer, from: number): number | null {
  let depth = 0;
  for (let at = from; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === QUOTE) {
      const end = afterString(bytes, at);
      if (end === null) return null;
      at = end - 1;
    } else if (byte === OPEN || byte === OPEN_LIST) depth += 1;
    else if (byte === CLOSE || byte === CLOSE_LIST) {
      depth -= 1;
      if (depth === 0) return at + 1;
    }
  }
  return null;
}
