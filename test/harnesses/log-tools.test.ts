// The log as a hand (log-tools.ts): slices, searches and rewinds of a log, bounded, and nothing shown that the API would not show.

import { describe, expect, test } from "vitest";
import { z } from "zod";
import { LOG_TOOLS, readerOf, runLogTool } from "../../harnesses/log-tools.ts";
import type { Entry, Stored } from "../../session-store/entry.ts";
import type { Fence } from "../../session-store/ids.ts";
import { mintEvent, position } from "../../session-store/ids.ts";
import { agent } from "./agents.ts";

const created: Entry = {
  type: "log.created",
  workspace: "default",
  agent: agent([]),
  environment_id: "env_1",
  title: null,
  metadata: {},
  resources: [],
  vault_ids: ["secret-vault"],
};
const said = (text: string): Entry => ({
  type: "log.received",
  event: { id: mintEvent(), type: "user.message", content: [{ type: "text", text }] },
  waits: true,
});
const answered = (text: string): Entry => ({ id: mintEvent(), type: "agent.message", content: [{ type: "text", text }] });
const note: Entry = { type: "log.note", harness: "claude", data: "a note of the harness" };
const picture: Entry = {
  id: mintEvent(),
  type: "agent.tool_result",
  tool_use_id: mintEvent(),
  content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: "A".repeat(4_000) } }],
  is_error: false,
};

const logOf = (...entries: Entry[]): readonly Stored[] =>
  entries.map((entry, index) => ({ position: position(index + 1), at: index * 1_000, fence: 1 as Fence, entry }));

async function ask(log: readonly Stored[], name: string, input: unknown = {}) {
  const outcome = await runLogTool(readerOf(log), { name, input });
  if (outcome.type !== "done") throw new Error(`${outcome.type}: ${outcome.reason}`);
  const [block] = outcome.content;
  if (block?.type !== "text") throw new Error("no text");
  return z.looseObject({}).parse(JSON.parse(block.text));
}

const SMALL = logOf(created, said("Where is the key?"), note, answered("Under the MAT, I think."), picture, said("Thanks"));

describe("get_events", () => {
  test("gives the newest first, with positions and times, and only what the API shows", async () => {
    const { events, next } = await ask(SMALL, "get_events");
    expect(events).toEqual([
      expect.objectContaining({ position: 6, time: "1970-01-01T00:00:05.000Z", type: "user.message", content: [{ type: "text", text: "Thanks" }] }),
      expect.objectContaining({
        position: 5,
        content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: "[3000 bytes]" } }],
      }),
      expect.objectContaining({ position: 4, type: "agent.message" }),
      expect.objectContaining({ position: 2, type: "user.message" }),
    ]);
    expect(next).toBeNull();
    expect(JSON.stringify(events)).not.toMatch(/secret-vault|note of the harness/);
  });

  test("goes on where it ended, in both orders, until there is no more", async () => {
    const log = logOf(...Array.from({ length: 30 }, (_, n) => answered(`answer ${n + 1}`)));
    for (const order of ["newest_first", "oldest_first"] as const) {
      const seen: number[] = [];
      let place: Record<string, unknown> | null = {};
      while (place) {
        const page: Record<string, unknown> = await ask(log, "get_events", { order, limit: 7, ...place });
        seen.push(
          ...z
            .array(z.looseObject({ position: z.number() }))
            .parse(page.events)
            .map((event) => event.position),
        );
        place = z.record(z.string(), z.unknown()).nullable().parse(page.next);
      }
      const all = Array.from({ length: 30 }, (_, n) => n + 1);
      expect(seen).toEqual(order === "oldest_first" ? all : all.reverse());
    }
  });

  test("takes types and bounds, and keeps its answer small whatever the events hold", async () => {
    expect(await ask(SMALL, "get_events", { types: ["user.message"], after: 2 })).toMatchObject({ events: [{ position: 6 }], next: null });
    const log = logOf(...Array.from({ length: 50 }, () => answered("x".repeat(100_000))));
    const { events, next } = await ask(log, "get_events", { limit: 100, text_chars: 20_000 });
    expect(JSON.stringify(events).length).toBeLessThan(30_000);
    expect(next).toMatchObject({ before: expect.any(Number) });
    expect(JSON.stringify(events)).toContain("more characters]");
  });
});

describe("search_events", () => {
  test("finds text in any case, newest first, with what stands around it", async () => {
    expect(await ask(SMALL, "search_events", { query: "the mat" })).toEqual({
      found: [{ position: 4, time: "1970-01-01T00:00:03.000Z", type: "agent.message", around: expect.stringContaining("Under the MAT, I think.") }],
      next: null,
    });
    expect(await ask(SMALL, "search_events", { query: "note of the harness" })).toEqual({ found: [], next: null });
  });

  test("takes * for any characters where it is asked to, and as it stands where not", async () => {
    expect(await ask(SMALL, "search_events", { query: "under*think", wildcards: true })).toMatchObject({ found: [{ position: 4 }] });
    expect(await ask(SMALL, "search_events", { query: "think*under", wildcards: true })).toMatchObject({ found: [] });
    expect(await ask(SMALL, "search_events", { query: "under*think" })).toMatchObject({ found: [] });
  });

  test("takes no longer for a pattern that would make an expression run for ever", async () => {
    const log = logOf(...Array.from({ length: 200 }, () => answered("a".repeat(20_000))));
    const from = performance.now();
    const { found } = await ask(log, "search_events", { query: `${"a*".repeat(200)}b`, wildcards: true });
    expect(found).toEqual([]);
    expect(performance.now() - from).toBeLessThan(5_000);
  });

  test("says where to go on when there is more than was asked for", async () => {
    const log = logOf(...Array.from({ length: 5 }, (_, n) => answered(`find me ${n + 1}`)));
    const first = await ask(log, "search_events", { query: "find me", limit: 2 });
    expect(first).toMatchObject({ found: [{ position: 5 }, { position: 4 }], next: { before: 4 } });
    expect(await ask(log, "search_events", { query: "find me", limit: 5, before: 4 })).toMatchObject({
      found: [{ position: 3 }, { position: 2 }, { position: 1 }],
      next: null,
    });
  });
});

describe("rewind", () => {
  test("shows the transcript as it stood before an event, and the log stays as it is", async () => {
    const before = JSON.stringify(SMALL);
    expect(await ask(SMALL, "rewind", { before: 4 })).toEqual({ before: 4, transcript: "[2] User: Where is the key?", earlier: null });
    expect(await ask(SMALL, "rewind", { before: 6 })).toMatchObject({
      transcript: "[2] User: Where is the key?\n\n[4] Agent: Under the MAT, I think.\n\n[5] Result: [image]",
    });
    expect(JSON.stringify(SMALL)).toBe(before);
  });

  test("of a long log gives its last part, and says how to see the earlier one", async () => {
    const log = logOf(...Array.from({ length: 100 }, (_, n) => answered(`${n + 1} ${"x".repeat(1_500)}`)));
    const { transcript, earlier } = await ask(log, "rewind", { before: 90 });
    expect(String(transcript).length).toBeLessThan(30_000);
    expect(transcript).toContain("[89] Agent: 89 ");
    const [, place] = /rewind before (\d+)/.exec(String(earlier)) ?? [];
    expect(String((await ask(log, "rewind", { before: Number(place) })).transcript)).toContain(`[${Number(place) - 1}] Agent`);
  });
});

test("every tool is read-only, refuses what does not fit in words, and has a name of its own", async () => {
  expect(LOG_TOOLS.tools.map(({ name }) => name)).toEqual(["get_events", "search_events", "rewind"]);
  for (const { annotations, input_schema } of LOG_TOOLS.tools) {
    expect(annotations).toMatchObject({ readOnlyHint: true, destructiveHint: false, idempotentHint: true });
    expect(input_schema).toMatchObject({ type: "object", additionalProperties: false });
  }
  await expect(ask(SMALL, "rewind", {})).rejects.toThrow(/failed: .*before/s);
  await expect(ask(SMALL, "get_events", { limit: 1_000 })).rejects.toThrow(/failed: .*limit/s);
  await expect(ask(SMALL, "drop_events", {})).rejects.toThrow('no tool "drop_events"');
});
