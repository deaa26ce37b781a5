import { expect, test } from "vitest";
import { masked } from "../../hands/servers/mask.ts";

test("values of an environment are masked wherever they stand, the longer one first", () => {
  expect(masked("a sk-12345678 b sk-12345678-9 c", ["sk-12345678", "sk-12345678-9"])).toBe("a *** b *** c");
});

test("a short value is a word that stands everywhere, and stays", () => {
  expect(masked("port 8080 and true", ["true", "8080"])).toBe("port 8080 and true");
});
