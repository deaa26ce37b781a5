// Masking (vault-proxy/scrub.ts): whatever the spelling and however it is cut, the credential doesn't come through.

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Scrubber } from "../../vault-proxy/scrub.ts";
import { KEY } from "./proxy.ts";

const hex = [...Buffer.from(KEY)].map((byte) => byte.toString(16).padStart(2, "0"));
const SPELLINGS: Record<string, string> = {
  raw: KEY,
  "base64, no bytes before": Buffer.from(KEY).toString("base64"),
  "base64, one byte before": Buffer.from(`:${KEY}:`).toString("base64"),
  "base64, two bytes before": Buffer.from(`a:${KEY}:`).toString("base64"),
  base64url: Buffer.from(`user:${KEY}`).toString("base64url"),
  hex: hex.join(""),
  "upper-case hex": hex.join("").toUpperCase(),
  "percent escapes where needed": encodeURIComponent(KEY),
  "percent escapes throughout": hex.map((pair) => `%${pair}`).join(""),
  "JSON escapes": hex.map((pair) => `\\u00${pair}`).join(""),
  "JSON escapes in another JSON text": hex.map((pair) => `\\\\u00${pair}`).join(""),
  "escaped slashes": KEY.replaceAll("/", "\\/"),
};

function through(scrubber: Scrubber, pieces: readonly Buffer[]): string {
  const body = scrubber.body();
  return Buffer.concat([...pieces.map((piece) => body.push(piece)), body.end()]).toString("latin1");
}

describe("masking", () => {
  test.each(Object.entries(SPELLINGS))("%s is masked wherever it is cut, and all else stays byte for byte", (name, spelling) => {
    const scrubber = new Scrubber(KEY);
    const cuts = fc.array(fc.nat(spelling.length + 40), { maxLength: 12 });
    const around = fc.string({ maxLength: 20, unit: fc.constantFrom("s", "k", "-", "{", '"', "%", "\\", "u", "0", "é") });
    fc.assert(
      fc.property(around, around, cuts, (before, after, at) => {
        const whole = Buffer.from(`${before}${spelling}${after}`, "latin1");
        const ends = [...at.filter((cut) => cut < whole.length).sort((a, b) => a - b), whole.length];
        const masked = through(
          scrubber,
          ends.map((end, index) => whole.subarray(index === 0 ? 0 : ends[index - 1], end)),
        );
        expect(masked).toHaveLength(whole.length);
        expect(masked.startsWith(before)).toBe(true);
        expect(masked.endsWith(after)).toBe(true);
        expect(masked).not.toContain(spelling);
        // The characters at the edges of base64 belong to the neighbours too; what they give away is less than two bytes.
        const left = masked.slice(before.length, before.length + spelling.length).replaceAll("*", "");
        expect(left.length).toBeLessThanOrEqual(name.startsWith("base64") ? 12 : 0);
      }),
      { numRuns: 200 },
    );
  });

  test("two in a row and overlapping beginnings are masked, whole", () => {
    const scrubber = new Scrubber("abababab");
    expect(through(scrubber, [Buffer.from("xababab"), Buffer.from("ababababy")])).not.toContain("abababab");
    expect(through(new Scrubber(KEY), [Buffer.from(KEY + KEY)])).toBe("*".repeat(2 * KEY.length));
  });

  test("a form's own escapes are masked, in small letters as well", () => {
    const credential = "canary~0123(456)/789";
    for (const text of ["canary%7E0123%28456%29%2F789", "canary%7e0123%28456%29%2f789"])
      expect(through(new Scrubber(credential), [Buffer.from(`refresh_token=${text}&a=b`)])).toBe(`refresh_token=${"*".repeat(text.length)}&a=b`);
  });

  test("nothing is held back but what may be the beginning of the credential", () => {
    const body = new Scrubber(KEY).body();
    expect(body.push(Buffer.from("data: {}\n\n")).toString()).toBe("data: {}\n\n");
    expect(body.push(Buffer.from(`x${KEY.slice(0, 10)}`)).toString()).toBe("x");
    expect(body.push(Buffer.from("!")).toString()).toBe(`${KEY.slice(0, 10)}!`);
    expect(body.end()).toHaveLength(0);
  });

  test("what began like the credential and ended is given in full", () => {
    expect(through(new Scrubber(KEY), [Buffer.from(KEY.slice(0, -1))])).toBe(KEY.slice(0, -1));
  });

  test("a credential too short to be told from other text is not masked", () => {
    expect(through(new Scrubber("key"), [Buffer.from("the key")])).toBe("the key");
  });
});
