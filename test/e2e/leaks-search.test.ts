// The search of the leak scan by itself: what it finds in which bytes.

import { expect, test } from "vitest";
import { Canaries, plantName } from "../leaks/canaries.ts";
import { ENCODINGS, IN_MEMORY, MARKED } from "../leaks/encodings.ts";
import { messagesOf } from "../leaks/http.ts";
import { Search } from "../leaks/search.ts";

const NOISE = Buffer.from(Array.from({ length: 5_000 }, (_, at) => (at * at * 31 + at * 7) % 251));

function planted(encodings: typeof ENCODINGS) {
  const canaries = new Canaries();
  const all = encodings.map((encoding) => ({ name: plantName("here", encoding.name), encoding }));
  const pieces = all.map(({ name, encoding }) => encoding.write(canaries.of(name)));
  return { canaries, names: all.map(({ name }) => name).sort(), pieces };
}
const found = (search: Search) => [...search.namesOn("here")].sort();

test("a secret is found in every encoding, and told by its name", () => {
  const { canaries, names, pieces } = planted(ENCODINGS);
  const search = new Search(canaries);
  for (const bytes of pieces) search.look("here", { place: "a piece", bytes });
  expect(found(search)).toEqual(names);
});

test("in the middle of other bytes it is found as well, but for what has no mark", () => {
  const { canaries, names, pieces } = planted(MARKED);
  const search = new Search(canaries);
  search.look("here", { place: "one piece", bytes: Buffer.concat(pieces.flatMap((piece) => [NOISE, piece])) });
  expect(found(search)).toEqual(names);
});

test("in memory it is found wherever a block begins", () => {
  const { canaries, names, pieces } = planted(IN_MEMORY);
  const search = new Search(canaries);
  for (const at of [0, 1, 2, 3])
    search.look("here", { place: "memory", bytes: Buffer.concat([NOISE.subarray(at), ...pieces.flatMap((piece) => [piece, NOISE])]), isPlain: true });
  expect(found(search)).toEqual(names);
});

test("escapes of escapes are found, and noise is not", () => {
  const canaries = new Canaries();
  const secret = canaries.of("a secret");
  const escaped = [...secret].map((letter) => `\\u00${letter.charCodeAt(0).toString(16)}`).join("");
  const search = new Search(canaries);
  search.look("here", { place: "a piece", bytes: Buffer.from(JSON.stringify({ text: JSON.stringify({ escaped }) })) });
  search.look("elsewhere", { place: "noise", bytes: NOISE });
  expect([found(search), search.findings.filter(({ surface }) => surface === "elsewhere")]).toEqual([["a secret"], []]);
});

test("half of a secret is a finding, whosever it is", () => {
  const canaries = new Canaries();
  const search = new Search(canaries);
  search.look("here", { place: "a piece", bytes: Buffer.from(`the first letters: ${canaries.anchor}`) });
  expect(found(search)).toEqual(["a part of one"]);
});

test("bodies are put together from chunks, and texts of a stream's events from events", () => {
  const body = ["Sec", "ret", "ly"].map((text) => `data: {"delta":{"text":"${text}"}}\n\n`).join("");
  const chunks = body.match(/.{1,5}/gs) ?? [];
  const head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
  const wire = `${head}${chunks.map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join("")}0\r\n\r\nHTTP/1.1 204 No Content\r\nx: y\r\n\r\n`;
  const messages = [...messagesOf(Buffer.from(wire))];
  expect(messages.map(({ first, bodies }) => [first.toString(), bodies.map(String)])).toEqual([
    ["HTTP/1.1 200 OK", [body, "Secretly"]],
    ["HTTP/1.1 204 No Content", []],
  ]);
});
