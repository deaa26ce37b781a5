// Ids (session-store/ids.ts): N1, N2.

import { expect, test } from "vitest";
import { mint, mintEvent, mintFrom, mintSession, parseSessionId, primaryThread } from "../../session-store/ids.ts";

test("a fresh id is its prefix and 24 letters and digits, and never the same twice", () => {
  const ids = Array.from({ length: 1_000 }, () => mint("sevt"));
  for (const id of ids) expect(id).toMatch(/^sevt_[0-9A-Za-z]{24}$/);
  expect(new Set(ids).size).toBe(1_000);
});

test("an id made from a key is the same for the same key, and another one for another key", () => {
  const id = mintFrom("sevt", "principal", "/v1/sessions", "key", 0);
  expect(id).toMatch(/^sevt_[0-9A-Za-z]{24}$/);
  expect(mintFrom("sevt", "principal", "/v1/sessions", "key", 0)).toBe(id);
  const others = [
    mintFrom("sevt", "principal", "/v1/sessions", "key", 1),
    mintFrom("sevt", "principal", "/v1/sessionskey", "", 0),
    mintFrom("sevt", "a", "b"),
  ];
  expect(new Set([id, ...others]).size).toBe(4);
});

test("parts of a key do not run into one another", () => {
  expect(mintFrom("x", "ab", "c")).not.toBe(mintFrom("x", "a", "bc"));
  expect(mintFrom("x", 1)).not.toBe(mintFrom("x", "1"));
});

test("a session's primary thread carries its suffix", () => {
  const id = mintSession();
  expect(primaryThread(id)).toBe(`sthr_${id.slice(5)}`);
});

test("a session id from outside is read strictly", () => {
  const id = mintSession();
  expect(parseSessionId(id)).toBe(id);
  for (const bad of ["", "sesn_", "sesn_a b", `${id}\n`, mintEvent(), `sesn_${"a".repeat(65)}`, "sesn_../x"]) expect(parseSessionId(bad)).toBeNull();
});
