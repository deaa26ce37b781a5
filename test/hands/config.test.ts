// The hand host's settings (hands/config.ts).

import { expect, it } from "vitest";
import { readConfig } from "../../hands/config.ts";

it("has safe defaults", () => {
  const config = readConfig({});
  expect(config).toMatchObject({ port: 0, host: "127.0.0.1", hasParentPipe: false, logLevel: "info" });
  expect(config.keysDir).toMatch(/\/\.manyhands\/keys$/);
});

it("knows the other programs' settings, and refuses a name that is nobody's", () => {
  expect(readConfig({ MANYHANDS_PORT: "4100", MANYHANDS_HANDS_PORT: "5000" }).port).toBe(5_000);
  expect(() => readConfig({ MANYHANDS_HAND_PORT: "5000" })).toThrow("unknown settings: MANYHANDS_HAND_PORT");
});

it("says which value can't be used", () => {
  expect(() => readConfig({ MANYHANDS_HANDS_PORT: "70000" })).toThrow(/^MANYHANDS_HANDS_PORT: /);
  expect(() => readConfig({ MANYHANDS_SANDBOX: "docker" })).toThrow("docker sandboxes are not available");
});
