// What a stateless server wants to see of a call's arguments in headers: `x-mcp-header` of its schema says which, `Mcp-Param-*` carries them.

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$/;
const PLAIN = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/;
const VALUE_BYTES_MAX = 8_192;

export function headersOf(schema: unknown, input: unknown): Readonly<Record<string, string>> {
  if (typeof schema !== "object" || schema === null || !("properties" in schema)) return {};
  const { properties } = schema;
  if (typeof properties !== "object" || properties === null || typeof input !== "object" || input === null) return {};
  const values = new Map(Object.entries(input));
  return Object.fromEntries(
    Object.entries(properties).flatMap(([property, about]: [string, unknown]): [string, string][] => {
      const header = typeof about === "object" && about !== null && "x-mcp-header" in about ? about["x-mcp-header"] : undefined;
      const value = values.get(property);
      if (typeof header !== "string" || !HEADER_NAME.test(header) || !["string", "number", "boolean"].includes(typeof value)) return [];
      const text = String(value);
      return Buffer.byteLength(text) > VALUE_BYTES_MAX ? [] : [[`Mcp-Param-${header}`, encoded(text)]];
    }),
  );
}

/** What a header can't carry as it is goes in base64, said so. */
export function encoded(text: string): string {
  if (PLAIN.test(text) && !text.startsWith("=?base64?")) return text;
  return `=?base64?${Buffer.from(text, "utf8").toString("base64")}?=`;
}
