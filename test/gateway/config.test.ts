// Settings (gateway/config.ts, gateway/roles.ts): what is taken, what is refused, and who is given what.

import { join, resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { readConfig, SettingError } from "../../gateway/config.ts";
import { environmentFor, type Role } from "../../gateway/roles.ts";
import { KNOWN_SETTINGS } from "../../session-store/settings.ts";
import { proves } from "../support/proves.ts";

function refusalOf(env: Record<string, string>): string {
  try {
    readConfig(env);
  } catch (error) {
    if (error instanceof SettingError) return error.message;
    throw error;
  }
  throw new Error("The settings were taken.");
}

describe("settings", () => {
  test("nothing set gives the embedded installation on the loopback address, frozen", () => {
    const config = readConfig({});
    expect(config).toEqual({
      port: 4100,
      host: "127.0.0.1",
      hands: { internalHosts: [], times: { connectMs: 30_000, idleMs: 120_000, totalMs: 1_800_000 }, checkMs: 300_000 },
      dataDir: resolve(".manyhands"),
      keysDir: join(resolve(".manyhands"), "keys"),
      sandbox: "auto",
      hasModelKey: false,
      isMcpOpen: false,
      hasOwnModelAddress: false,
      leaseMs: 15_000,
      sessionsMax: 64,
      keepAliveMs: 15_000,
      vaultPort: 0,
      handsPort: 0,
      parentPipe: false,
      logLevel: "info",
      isLogLevelGiven: false,
    });
    expect(Object.isFrozen(config)).toBe(true);
  });

  test("an empty value counts as not set", () => {
    expect(readConfig({ MANYHANDS_PORT: "", REDIS_URL: "", ANTHROPIC_API_KEY: "" })).toEqual(readConfig({}));
  });

  test("of the model's key the configuration knows only that there is one", () => {
    const config = readConfig({ ANTHROPIC_API_KEY: "sk-ant-canary" });
    expect(config.hasModelKey).toBe(true);
    expect(JSON.stringify(config)).not.toContain("canary");
  });

  proves("setting:unknown-stops", "an unknown name is refused, and a setting that is near it is suggested", () => {
    expect(refusalOf({ MANYHANDS_PROT: "1" })).toBe("MANYHANDS_PROT is not a setting of Manyhands. Did you mean MANYHANDS_PORT?");
    expect(refusalOf({ MANYHANDS_LEASE: "1" })).toContain("MANYHANDS_LEASE_MS");
    expect(refusalOf({ MANYHANDS_MODEL_KEY: "canary" })).toContain("MANYHANDS_MODEL_KEY_FILE");
    expect(refusalOf({ MANYHANDS_X: "1" })).toBe("MANYHANDS_X is not a setting of Manyhands. README.md lists them.");
  });

  proves("setting:unknown-stops", "a value that is not allowed is refused with what is, and is never repeated", () => {
    const bad = {
      MANYHANDS_PORT: "65536",
      MANYHANDS_HOST: "canary host",
      MANYHANDS_API_KEY: "canary",
      MANYHANDS_LEASE_MS: "1e9canary",
      MANYHANDS_SESSIONS_MAX: "0",
      MANYHANDS_VAULT_URL: "ftp://canary",
      MANYHANDS_PARENT_PIPE: "canary",
      MANYHANDS_LOG_LEVEL: "canary",
      REDIS_URL: "http://user:canary@127.0.0.1",
    };
    for (const [name, value] of Object.entries(bad)) {
      const says = refusalOf({ [name]: value });
      expect(says).toMatch(new RegExp(`^${name} is not valid\\. It takes .+\\.$`));
      expect(says).not.toContain("canary");
    }
  });

  test("docker hands are refused with the reason", () => {
    expect(refusalOf({ MANYHANDS_SANDBOX: "podman" })).toContain('"auto", "virtual" or "docker"');
  });

  test("a fault point is refused outside of tests", () => {
    expect(refusalOf({ MANYHANDS_FAULT_POINT: "taken" })).toContain("NODE_ENV=test");
    expect(readConfig({ MANYHANDS_FAULT_POINT: "taken:3", NODE_ENV: "test" }).faultPoint).toBe("taken:3");
  });
});

describe("what a child is given", () => {
  const secrets = { ANTHROPIC_API_KEY: "canary-1", MANYHANDS_MODEL_KEY_FILE: "/canary-2", ANTHROPIC_BASE_URL: "http://canary-3" };
  const env = { PATH: "/bin", SOMETHING_ELSE: "canary-4", MANYHANDS_API_KEY: "canary-5", REDIS_URL: "redis://canary-6", ...secrets };
  const given = (role: Role) => environmentFor(role, env, { MANYHANDS_PARENT_PIPE: "1" });

  proves("key:only-in-vault-proxy", "the model's key and address are given to the vault proxy and to nobody else", () => {
    expect(given("vault-proxy")).toEqual({ PATH: "/bin", MANYHANDS_PARENT_PIPE: "1", ...secrets });
    for (const role of ["hands", "gateway", "worker"] as const) expect(JSON.stringify(given(role))).not.toMatch(/canary-[1234]/);
  });

  test("the hand host is given neither the API key nor the store's address", () => {
    expect(given("hands")).toEqual({ PATH: "/bin", MANYHANDS_PARENT_PIPE: "1" });
  });

  test("every name of ours that a role is given is a known setting", () => {
    const all = Object.fromEntries(KNOWN_SETTINGS.map((name) => [name, "x"]));
    const names = (["vault-proxy", "hands", "gateway", "worker"] as const).flatMap((role) => Object.keys(environmentFor(role, all, {})));
    expect(KNOWN_SETTINGS.filter((name) => !names.includes(name))).toEqual([]);
  });
});
