import { expect, it } from "vitest";
import { globPattern } from "../../hands/tools/find.ts";
import { HAND_TOOLS, TOOL_INPUTS, TOOLSET, TOOLSET_NAMES } from "../../hands/toolset.ts";

it("lists the hand's tools in a fixed order, and says what each may do", () => {
  const said = TOOLSET.map(({ name, isReadOnly, isIdempotent }) => [name, isReadOnly, isIdempotent]);
  expect(said).toEqual([
    ["bash", false, false],
    ["read", true, true],
    ["write", false, true],
    ["edit", false, false],
    ["glob", true, true],
    ["grep", true, true],
  ]);
  expect(TOOLSET_NAMES).toEqual([...HAND_TOOLS, "web_fetch", "web_search"]);
});

it("tells the model the same fields that its check takes", () => {
  for (const tool of TOOLSET) {
    const { properties, required = [] } = tool.input_schema as { properties: Record<string, unknown>; required?: string[] };
    const shape = TOOL_INPUTS[tool.name].shape as Record<string, { safeParse(value: unknown): { success: boolean } }>;
    expect(Object.keys(properties)).toEqual(Object.keys(shape));
    expect(required).toEqual(Object.keys(shape).filter((field) => shape[field]?.safeParse(undefined).success === false));
  }
});

it.each([
  ["**/*.ts", "a.ts", true],
  ["**/*.ts", "a/b/c.ts", true],
  ["*.ts", "a/c.ts", false],
  ["a/**", "a/b/c", true],
  ["a/**/c", "a/c", true],
  ["{a,b}.txt", "b.txt", true],
  ["{a,b}.txt", "c.txt", false],
  ["[a-c].txt", "b.txt", true],
  ["[!a].txt", "a.txt", false],
  ["a?.txt", "a/.txt", false],
  ["a+(b).txt", "a+(b).txt", true],
  ["{a", "{a", true],
])("matches the pattern %s against %s: %s", (pattern, path, isMatch) => {
  expect(globPattern(pattern).test(path)).toBe(isMatch);
});
