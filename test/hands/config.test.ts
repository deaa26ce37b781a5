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
  expect(() => readConfig({ MANYHANDS_SANDBOX: "jail" })).toThrow("MANYHANDS_SANDBOX");
  expect(() => readConfig({ DOCKER_HOST: "ssh://elsewhere" })).toThrow("DOCKER_HOST: unix:///a/path or tcp://name:port");
  expect(() => readConfig({ MANYHANDS_DOCKER_MEMORY_MB: "1" })).toThrow("MANYHANDS_DOCKER_MEMORY_MB");
});

it("takes an engine's address and limits", () => {
  const { docker, sandbox } = readConfig({
    MANYHANDS_SANDBOX: "docker",
    DOCKER_HOST: "tcp://127.0.0.1:2375",
    MANYHANDS_DOCKER_CPUS: "0.5",
    MANYHANDS_DOCKER_PIDS: "64",
  });
  expect(sandbox).toBe("docker");
  expect(docker).toEqual({
    engine: { host: "127.0.0.1", port: 2375 },
    image: "manyhands-hand",
    limits: { memoryMb: 1024, pids: 64, cpus: 0.5, tmpMb: 256 },
    containersMax: 32,
    vaultUrl: null,
  });
});
