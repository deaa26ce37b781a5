// Bytes of JSON and of event streams: found, cut and put together as the standard readers see them, whatever pieces they come in.

import fc from "fast-check";
import { expect, test } from "vitest";
import { Events, type Look } from "../../gateway/relay/events.ts";
import { edited, itemsOf, memberOf, membersOf, stringOf, textOf, without } from "../../gateway/relay/spans.ts";

const spaced = fc.constantFrom(undefined, 1, "\t");

test("members and items of any JSON are those that a parser finds, and each can be taken out", () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string(), fc.jsonValue()), fc.array(fc.jsonValue()), spaced, fc.nat(), (object, array, space, pick) => {
      const text = Buffer.from(JSON.stringify(object, null, space));
      const members = membersOf(text);
      expect(Object.fromEntries(members.map((member) => [member.name, JSON.parse(textOf(text, member))]))).toEqual(JSON.parse(text.toString()));
      const gone = members.filter((_, index) => (pick >> (index % 30)) & 1);
      const left = JSON.parse(
        edited(
          text,
          without(members, (span) => gone.some((each) => each === span)),
        ).toString(),
      );
      expect(Object.keys(left)).toHaveLength(members.length - gone.length);
      const list = Buffer.from(JSON.stringify(array, null, space));
      const items = itemsOf(list, 0);
      expect(items.map((item) => JSON.parse(textOf(list, item)))).toEqual(JSON.parse(list.toString()));
      const kept = edited(
        list,
        without(items, (_, index) => index % 2 === 0),
      );
      expect(JSON.parse(kept.toString())).toEqual(JSON.parse(list.toString()).filter((_: unknown, index: number) => index % 2 === 1));
    }),
  );
});

test("a text that is cut off gives what is whole of it", () => {
  const text = Buffer.from('{"a":1,"b":"x\\"}","n\\u0061me":[1,{"c":"}"}],"long":"abc');
  const members = membersOf(text);
  expect(members.map(({ name, isWhole }) => [name, isWhole])).toEqual([
    ["a", true],
    ["b", true],
    ["name", true],
    ["long", false],
  ]);
  const b = memberOf(members, "b");
  expect(b && stringOf(text, b)).toBe('x"}');
});

test("many names before a long value are read in time that their own length explains", () => {
  const names = Array.from({ length: 20_000 }, (_, at) => `"name-${at}":${at}`).join(",");
  const text = Buffer.concat([Buffer.from(`{${names},"long":"`), Buffer.alloc(64 * 1024 * 1024, "a"), Buffer.from('"}')]);
  const started = performance.now();
  expect(membersOf(text)).toHaveLength(20_001);
  // A search to the end of the text, for each name, takes a minute.
  expect(performance.now() - started).toBeLessThan(10_000);
});

/** Events with what becomes of each, in any line endings. */
const events = fc.array(
  fc.record({
    id: fc.option(fc.nat({ max: 99 }), { nil: undefined }),
    data: fc.option(fc.jsonValue(), { nil: undefined }),
    fate: fc.constantFrom("pass", "put", "drop"),
    ending: fc.constantFrom("\n", "\r\n"),
    comment: fc.boolean(),
  }),
  { maxLength: 8 },
);

test("events pass as they came, replaced or left out one by one, however the stream is cut", () => {
  fc.assert(
    fc.property(events, fc.array(fc.nat({ max: 40 }), { minLength: 1 }), (all, cuts) => {
      const lines = all.map(({ id, data, ending, comment }) =>
        [comment && ": c", id !== undefined && `id: ${id}`, data !== undefined && `data: ${JSON.stringify(data)}`, ""]
          .filter((line) => line !== false)
          .map((line) => line + ending)
          .join(""),
      );
      const fates = all.filter(({ data }) => data !== undefined).map(({ fate }) => fate);
      const seen: unknown[] = [];
      const look = (text: Buffer): Look => {
        const fate = fates[seen.push(JSON.parse(text.toString())) - 1];
        return fate === "put" ? { put: Buffer.from('"other"') } : fate === "drop" ? "drop" : "pass";
      };
      const splitter = new Events({ look, mayFlow: () => null });
      const whole = Buffer.from(lines.join(""));
      const out: Buffer[] = [];
      for (let at = 0, cut = 0; at < whole.length; cut += 1) {
        const size = 1 + (cuts[cut % cuts.length] ?? 0);
        out.push(...splitter.take(whole.subarray(at, at + size)));
        at += size;
      }
      expect(seen).toEqual(all.filter(({ data }) => data !== undefined).map(({ data }) => JSON.parse(JSON.stringify(data))));
      const expected = all.map(({ id, data, fate }, index) => {
        if (data === undefined || fate === "pass") return lines[index];
        if (fate === "drop") return id === undefined ? "" : `id: ${id}\ndata: \n\n`;
        return /data/.test(lines[index] ?? "")
          ? `${lines[index]?.startsWith(":") ? ": c\n" : ""}${id === undefined ? "" : `id: ${id}\n`}data: "other"\n\n`
          : "";
      });
      expect(Buffer.concat(out).toString()).toBe(expected.join(""));
    }),
  );
});

test("an event that is too long to hold flows from where it is known to be an answer, to its very end", () => {
  const long = `data: {"jsonrpc":"2.0","id":1,"result":{"text":"${"x".repeat(3 * 1024 * 1024)}"}}\r\n\r\n`;
  const stream = Buffer.from(`${long}data: {"n":2}\n\n`);
  const seen: string[] = [];
  const splitter = new Events({
    look: (text) => {
      seen.push(text.toString());
      return "drop";
    },
    mayFlow: (text) => text.includes('"result"'),
  });
  const out: Buffer[] = [];
  for (let at = 0; at < stream.length; at += 65_537) out.push(...splitter.take(stream.subarray(at, at + 65_537)));
  expect(Buffer.concat(out).toString() === long).toBe(true);
  expect(seen).toEqual(['{"n":2}']);
  expect(splitter.isBetween).toBe(true);
});
