// The vault proxy's settings and keys (vault-proxy/config.ts, model-key.ts).

import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { KNOWN_SETTINGS } from "../../session-store/settings.ts";
import { readConfig, takeModelKey } from "../../vault-proxy/config.ts";
import { keyFile } from "../../vault-proxy/model-key.ts";

describe("settings", () => {
  test("defaults are the safe ones", () => {
    expect(readConfig({})).toMatchObject({
      host: "127.0.0.1",
      port: 0,
      grantKeyFile: join(process.cwd(), ".manyhands/keys/grant.public.jwk"),
      modelKeyFile: null,
      modelUrl: new URL("https://api.anthropic.com"),
      headersTimeoutMs: 120_000,
      isParentPiped: false,
    });
  });

  test("a name of ours that nobody knows stops it, one of another program's does not", () => {
    expect(() => readConfig({ MANYHANDS_VALUT_PORT: "1" })).toThrow("unknown setting: MANYHANDS_VALUT_PORT");
    expect(readConfig({ MANYHANDS_PORT: "4100", PATH: "/bin" }).port).toBe(0);
  });

  test("the vault's key is the vault's own file, or comes from one other place, and is taken out of the environment", () => {
    const vaultKeyOf = (env: NodeJS.ProcessEnv) => readConfig(env).vaultKey;
    expect(vaultKeyOf({ MANYHANDS_DATA_DIR: "/d" })).toEqual({ type: "file", path: "/d/vault/master.key", isOwn: true });
    expect(vaultKeyOf({ MANYHANDS_VAULT_KEY_FILE: "/k" })).toEqual({ type: "file", path: "/k", isOwn: false });
    const env: NodeJS.ProcessEnv = { MANYHANDS_VAULT_KEY: "k" };
    expect([vaultKeyOf(env), env]).toEqual([{ type: "text", text: "k", name: "MANYHANDS_VAULT_KEY" }, {}]);
    expect(() => vaultKeyOf({ MANYHANDS_VAULT_KEY: "canary", MANYHANDS_VAULT_KEY_FILE: "/k" })).toThrow(/^MANYHANDS_VAULT_KEY_FILE: .* one place/);
  });

  test("a git host has one scheme, since a hand names repositories without it", () => {
    const origins = (hosts: string) => readConfig({ MANYHANDS_GIT_HOSTS: hosts }).gitOrigins;
    expect(origins("git.example.com, https://git.example.com http://10.0.0.5:3000")).toEqual(["https://git.example.com", "http://10.0.0.5:3000"]);
    expect(() => origins("http://git.example.com, git.example.com")).toThrow("MANYHANDS_GIT_HOSTS");
    expect(() => origins("http://github.com")).toThrow("MANYHANDS_GIT_HOSTS");
  });

  test("a Vault server needs one way to log in", () => {
    const server = (env: NodeJS.ProcessEnv) => readConfig({ VAULT_ADDR: "https://v.example:8200/", ...env }).server;
    expect(server({ MANYHANDS_VAULT_TOKEN_FILE: "/t" })).toEqual({
      url: "https://v.example:8200",
      namespace: null,
      mount: "secret",
      prefix: "manyhands",
      login: { type: "token", file: "/t" },
    });
    expect(server({ MANYHANDS_VAULT_ROLE_ID_FILE: "/r", MANYHANDS_VAULT_SECRET_ID_FILE: "/s" })?.login).toMatchObject({
      type: "approle",
      mount: "approle",
    });
    for (const env of [
      {},
      { MANYHANDS_VAULT_ROLE_ID_FILE: "/r" },
      { MANYHANDS_VAULT_TOKEN_FILE: "/t", MANYHANDS_VAULT_ROLE_ID_FILE: "/r", MANYHANDS_VAULT_SECRET_ID_FILE: "/s" },
    ])
      expect(() => server(env)).toThrow("VAULT_ADDR: needs");
  });

  test("every setting of this project is known to it", () => {
    const refused = KNOWN_SETTINGS.filter((name) => {
      try {
        readConfig({ [name]: "1" });
        return false;
      } catch (error) {
        return String(error).includes("unknown setting");
      }
    });
    expect(refused).toEqual([]);
  });

  test.each([
    [{ VAULT_ADDR: "https://user:secret-value@v.example" }, "VAULT_ADDR"],
    [{ MANYHANDS_VAULT_MOUNT: "../secret-value" }, "MANYHANDS_VAULT_MOUNT"],
    [{ MANYHANDS_VAULT_PORT: "secret-value" }, "MANYHANDS_VAULT_PORT"],
    [{ ANTHROPIC_BASE_URL: "ftp://secret-value" }, "ANTHROPIC_BASE_URL"],
    [{ ANTHROPIC_BASE_URL: "https://user:secret-value@example.org" }, "ANTHROPIC_BASE_URL"],
  ])("a bad value is named in one line without being told: %o", (env, name) => {
    const told = (() => {
      try {
        readConfig(env);
        return "";
      } catch (error) {
        return String(error);
      }
    })();
    expect(told).toContain(name);
    expect(told).not.toMatch(/secret-value|\n/);
  });

  test("the model key is taken out of the environment", () => {
    const env = { ANTHROPIC_API_KEY: " sk-1 \n" };
    expect([takeModelKey(env), env, takeModelKey(env)]).toEqual(["sk-1", {}, null]);
  });
});

describe("a model key in a file", () => {
  test("is read again when it changes, is missed when it goes, and a loose mode is told", async () => {
    const folder = mkdtempSync(join(tmpdir(), "manyhands-key-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const file = join(folder, "model.key");
    writeFileSync(file, "sk-first\n", { mode: 0o600 });
    const told: string[] = [];
    const keys = keyFile(file, (reason) => told.push(reason));
    expect([keys.current()?.value, told]).toEqual(["sk-first", []]);

    writeFileSync(file, "sk-second\n");
    await expect.poll(() => keys.current()?.value, { timeout: 8_000 }).toBe("sk-second");
    chmodSync(file, 0o644);
    await expect.poll(() => [keys.current()?.value, told.join()].join(), { timeout: 8_000 }).toMatch(/readable by group or others/);
    writeFileSync(file, "two\nlines");
    await expect.poll(() => keys.current(), { timeout: 8_000 }).toBe(null);
    rmSync(file);
    await expect.poll(() => [keys.current(), told.at(-1)], { timeout: 8_000 }).toEqual([null, "ENOENT"]);
    expect(told.join()).not.toContain("sk-");
  });
});
