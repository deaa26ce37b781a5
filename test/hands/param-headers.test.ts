// Arguments that a stateless server wants to see in headers (hands/servers/param-headers.ts).

import { expect, test } from "vitest";
import { faultIn, headersOf } from "../../hands/servers/param-headers.ts";

const object = (properties: object, more: object = {}) => ({ type: "object", properties, ...more });
const marked = (header: unknown, type: unknown = "string") => ({ type, "x-mcp-header": header });

test("what is marked goes into headers, from inner objects as well; what a header can't carry goes in base64", () => {
  const schema = object({
    region: marked("Region"),
    count: marked("Count", "integer"),
    on: marked("On", "boolean"),
    absent: marked("Absent"),
    nothing: marked("Nothing"),
    word: marked("Word"),
    padded: marked("Padded"),
    empty: marked("Empty"),
    like: marked("Like"),
    plain: { type: "string" },
    inner: object({ zone: marked("Zone") }),
  });
  const input = {
    region: "eu",
    count: 3,
    on: false,
    nothing: null,
    word: "ü",
    padded: " a",
    empty: "",
    like: "=?base64?x?=",
    plain: "p",
    inner: { zone: "z" },
  };
  expect(headersOf(schema, input)).toEqual({
    "Mcp-Param-Region": "eu",
    "Mcp-Param-Count": "3",
    "Mcp-Param-On": "false",
    "Mcp-Param-Word": "=?base64?w7w=?=",
    "Mcp-Param-Padded": "=?base64?IGE=?=",
    "Mcp-Param-Empty": "=?base64??=",
    "Mcp-Param-Like": "=?base64?PT9iYXNlNjQ/eD89?=",
    "Mcp-Param-Zone": "z",
  });
  expect(faultIn(schema)).toBeNull();
});

test.each([
  ["no name", object({ a: marked("") })],
  ["no text", object({ a: marked(3) })],
  ["a space", object({ a: marked("A B") })],
  ["a line break", object({ a: marked("A\r\nB") })],
  ["a number", object({ a: marked("A", "number") })],
  ["an object", object({ a: marked("A", "object") })],
  ["a list", object({ a: marked("A", "array") })],
  ["no type", object({ a: { "x-mcp-header": "A" } })],
  ["several types", object({ a: marked("A", ["string", "null"]) })],
  ["twice, in another case", object({ a: marked("One"), b: marked("oNE") })],
  ["inside of a list", object({ a: { type: "array", items: marked("A") } })],
  ["in a branch", object({}, { anyOf: [object({ a: marked("A") })] })],
  ["in a definition", object({}, { $defs: { a: marked("A") } })],
  ["at the top", marked("A")],
])("a mark that is odd (%s) is a fault, and no header comes of it", (_name, schema) => {
  expect(faultIn(schema)).toEqual(expect.stringContaining("x-mcp-header"));
  expect(headersOf(schema, { a: "x", b: "y" })).toEqual({});
});

test("an argument that has the mark's name, and one in an example, is none", () => {
  const schema = object({ "x-mcp-header": { type: "string" }, a: { type: "string", default: { "x-mcp-header": "A" } } });
  expect([faultIn(schema), headersOf(schema, { "x-mcp-header": "x", a: "y" })]).toEqual([null, {}]);
});
