// Which headers a tool may ask for, and what goes into them.

import { expect, test } from "vitest";
import { headerFault, headersOf } from "../../hands/servers/param-headers.ts";

const asks = (header: unknown, type: unknown = "string") => ({ type, "x-mcp-header": header });
const object = (properties: object, more: object = {}) => ({ type: "object", properties, ...more });

const GOOD: [string, object][] = [
  ["none", object({ a: { type: "string" } })],
  ["each kind", object({ a: asks("A"), b: asks("B", "integer"), c: asks("C", "boolean") })],
  ["one below another object", object({ a: object({ b: asks("Deep") }) })],
  ["a property of that very name", object({ "x-mcp-header": { type: "string" }, items: asks("Items") })],
  ["every sign that a header's name may have", object({ a: asks("!#$%&'*+-.^_`|~0aZ") })],
];
test.each(GOOD)("%s is good", (_what, schema) => expect(headerFault(schema)).toBeNull());

const BAD: [string, object, RegExp][] = [
  ["an empty name", object({ a: asks("") }), /"a" is no name/],
  ["a name with a space", object({ a: asks("a b") }), /no name/],
  ["a name with a line's end", object({ a: asks("a\r\nEvil: 1") }), /no name/],
  ["a name with a colon", object({ a: asks("a:b") }), /no name/],
  ["a name that is not ASCII", object({ a: asks("Größe") }), /no name/],
  ["a name that is no text", object({ a: asks(1) }), /no name/],
  ["a number", object({ a: asks("A", "number") }), /string, an integer or a boolean/],
  ["an object", object({ a: asks("A", "object") }), /string, an integer or a boolean/],
  ["a property of no type", object({ a: { "x-mcp-header": "A" } }), /string, an integer or a boolean/],
  ["a property of two types", object({ a: asks("A", ["string", "null"]) }), /string, an integer or a boolean/],
  ["one name twice, whatever the case", object({ a: asks("Region"), b: object({ c: asks("region") }) }), /another property/],
  ["the root", { ...object({}), "x-mcp-header": "A" }, /root/],
  ["an item", object({ a: { type: "array", items: asks("A") } }), /under items/],
  ["a branch", object({}, { anyOf: [object({ a: asks("A") })] }), /under anyOf/],
  ["a definition", object({}, { $defs: { a: asks("A") } }), /under \$defs/],
  ["what follows a condition", object({}, { else: object({ a: asks("A") }) }), /under else/],
  ["other properties", object({}, { additionalProperties: asks("A") }), /under additionalProperties/],
];
test.each(BAD)("%s is not", (_what, schema, says) => {
  expect(headerFault(schema)).toMatch(says);
  expect(headersOf(schema, { a: "x" })).toEqual({});
});

const SCHEMA = object({
  text: asks("Text"),
  n: asks("N", "integer"),
  yes: asks("Yes", "boolean"),
  in: object({ at: asks("At") }),
  other: { type: "string" },
});
const VALUES: [string, object, object][] = [
  [
    "plain ones",
    { text: "us-west 1", n: -42, yes: false, in: { at: "deep" }, other: "no" },
    { Text: "us-west 1", N: "-42", Yes: "false", At: "deep" },
  ],
  ["what is absent or null", { text: null, in: {} }, {}],
  ["what is no plain value", { text: ["a"], n: {}, in: "x" }, {}],
  ["a text that is not ASCII", { text: "Zürich" }, { Text: "=?base64?WsO8cmljaA==?=" }],
  ["an empty text", { text: "" }, { Text: "=?base64??=" }],
  ["spaces at an end", { text: " a" }, { Text: "=?base64?IGE=?=" }],
  ["a line's end", { text: "a\r\nEvil: 1" }, { Text: "=?base64?YQ0KRXZpbDogMQ==?=" }],
  ["what looks like base64 of this kind", { text: "=?base64?YQ==?=" }, { Text: "=?base64?PT9iYXNlNjQ/WVE9PT89?=" }],
  ["a number that can't be held exactly", { n: 2 ** 60 }, {}],
];
test.each(VALUES)("%s: as they are told", (_what, input, headers) => {
  expect(headersOf(SCHEMA, input)).toEqual(Object.fromEntries(Object.entries(headers).map(([name, value]) => [`Mcp-Param-${name}`, value])));
});

test("a name of JavaScript's own is no argument", () => {
  expect(headersOf(object({ constructor: asks("A"), toString: object({ name: asks("B") }) }), {})).toEqual({});
});
