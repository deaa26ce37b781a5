// What the model is told of a server's tools: names (tool-names.ts) and the frozen list (server-lists.ts, known-servers.ts).

import { describe, expect, test } from "vitest";
import { KnownServers } from "../../harnesses/known-servers.ts";
import { frozenOf } from "../../harnesses/server-lists.ts";
import { exposedName } from "../../harnesses/tool-names.ts";
import type { Stored } from "../../session-store/entry.ts";
import type { FrozenTool, LogTools } from "../../session-store/events/log.ts";
import type { Fence } from "../../session-store/ids.ts";
import { position } from "../../session-store/ids.ts";

const server = { name: "docs", url: "http://docs/mcp" };
const given = (name: string, hash = "1") => ({ name, description: `${name} ${hash}`, input_schema: { type: "object" }, hash });
const listOf =
  (tools: readonly FrozenTool[], ...now: ReturnType<typeof given>[]) =>
  (isFresh: boolean) =>
    frozenOf(server, { hash: "list", tools: now }, tools, tools, isFresh);
const first = (...names: string[]): LogTools => {
  const list = listOf([], ...names.map((name) => given(name)))(true);
  if (list === null) throw new Error("no list");
  return list;
};

describe("a list", () => {
  test("that says the same is no entry", () => {
    expect(listOf(first("a", "b").tools, given("a"), given("b"))(true)).toBeNull();
  });

  test("takes what is new and leaves out what is gone at any time", () => {
    const next = listOf(first("a", "b").tools, given("b"), given("c"))(false);
    expect(next?.tools.map(({ original }) => original)).toEqual(["b", "c"]);
    expect([next?.changed, next?.hash]).toEqual([[], "list"]);
  });

  test("holds a changed definition back until the session begins to run, and names it then", () => {
    const { tools } = first("a", "b");
    expect(listOf(tools, given("a", "2"), given("b"))(false)).toBeNull();
    const added = listOf(tools, given("a", "2"), given("b"), given("c"))(false);
    expect(added?.tools.map(({ description }) => description)).toEqual(["a 1", "b 1", "c 1"]);
    expect(added?.hash).not.toBe("list");
    const fresh = listOf(tools, given("a", "2"), given("b"))(true);
    expect(fresh?.tools[0]).toMatchObject({ name: "mcp__docs__a", description: "a 2", hash: "2" });
    expect(fresh?.changed).toEqual(["a"]);
  });
});

test("the log's order of tools stays: what is new stands at the end, another address is another server", () => {
  const known = new KnownServers();
  let at = 0;
  const take = (entry: Stored["entry"]) => {
    at += 1;
    known.take({ entry, position: position(at), at: 0, fence: 1 as Fence });
  };
  take(first("b", "c"));
  take({ ...first("x"), server: { name: "other", url: "http://other" }, tools: [{ ...first("x").tools[0], name: "mcp__other__x" } as FrozenTool] });
  take({ ...first("a", "c"), hash: "2" });
  expect(known.tools.map(({ name }) => name)).toEqual(["mcp__docs__c", "mcp__other__x", "mcp__docs__a"]);
  expect([known.listOf(server)?.hash, known.listOf({ ...server, url: "http://elsewhere" })]).toEqual(["2", null]);
  take({ ...first("z"), server: { ...server, url: "http://elsewhere" } });
  expect(known.tools.map(({ name }) => name)).toEqual(["mcp__other__x", "mcp__docs__z"]);
});

test("names are legal, at most 64 long, numbered where they meet and marked where they are cut", () => {
  const taken = new Set<string>();
  const name = (original: string, from = "docs"): string => {
    const made = exposedName({ server: from, original }, (each) => taken.has(each));
    taken.add(made);
    return made;
  };
  expect([name("a.b"), name("a:b"), name("a/b"), name("_x")]).toEqual(["mcp__docs__a_b", "mcp__docs__a_b_2", "mcp__docs__a_b_3", "mcp__docs___x"]);
  const long = [name(`${"n".repeat(80)}1`), name(`${"n".repeat(80)}2`), name("search", "s".repeat(255))];
  expect(new Set(long).size).toBe(3);
  for (const each of long) expect(each).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
});
