// The Vault server's driver: against a test double of one, or against a real server when VAULT_ADDR (and VAULT_TOKEN) are set for the test.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pino from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ServerVault, type ServerVaultOptions } from "../../vault-proxy/drivers/server/driver.ts";
import type { RecordKey } from "../../vault-proxy/store.ts";
import { type Program, startProgram } from "../support/process.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { until } from "../support/until.ts";
import { ROLE_ID, ROOT_TOKEN, SECRET_ID } from "../support/vault-double/server.ts";
import { describeVaultStore } from "./vault.suite.ts";

const key = (id: string): RecordKey => ({ workspace: "default", kind: "vault", id });
const logged: string[] = [];
const log = pino({ level: "trace" }, { write: (line: string) => void logged.push(line) });
let double: Program;
let url = "";
let folder = "";
const opened: ServerVault[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-vault-server-"));
  await writeFile(join(folder, "token"), `${process.env.VAULT_TOKEN ?? ROOT_TOKEN}\n`);
  await writeFile(join(folder, "role-id"), ROLE_ID);
  await writeFile(join(folder, "secret-id"), SECRET_ID);
  double = startProgram("test/support/vault-double/main");
  url = String((await double.logged("process.listening")).url);
});
afterAll(async () => {
  for (const vault of opened) await vault.close();
  await double[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

const byToken = () => ({ type: "token" as const, file: join(folder, "token") });
const byRole = () => ({ type: "approle" as const, roleIdFile: join(folder, "role-id"), secretIdFile: join(folder, "secret-id"), mount: "approle" });
function open(more: Partial<ServerVaultOptions> = {}): ServerVault {
  const vault = new ServerVault({ url, namespace: null, mount: "secret", prefix: "manyhands", login: byRole(), ...more }, log);
  opened.push(vault);
  return vault;
}
const behave = (behaviour: object) => fetch(`${url}/double`, { method: "POST", body: JSON.stringify(behaviour) });
const calls = async () => (await (await fetch(`${url}/double`)).json()) as Record<string, number>;
const troubleOf = (asked: Promise<unknown>) =>
  asked.then(
    () => "none",
    (error: { name: string; reason: string }) => `${error.name} ${error.reason}`,
  );

const realUrl = process.env.VAULT_ADDR;
describeVaultStore(realUrl === undefined ? "server (test double)" : "server", async () => {
  const make = () => open({ login: byToken(), namespace: process.env.VAULT_NAMESPACE ?? null, ...(realUrl !== undefined && { url: realUrl }) });
  return { store: make(), again: async () => make(), close: async () => {} };
});

describe("a vault server in trouble", () => {
  test("sealed, denied, away and unmounted are told apart, and over when they are over", async () => {
    const vault = open();
    await vault.put(key("vlt_a"), { n: 1 }, 0);
    await behave({ sealed: true });
    expect(await troubleOf(vault.get(key("vlt_a")))).toBe("StoreTrouble sealed");
    expect(await troubleOf(open().get(key("vlt_a")))).toBe("StoreTrouble sealed");
    await behave({ denied: true });
    expect(await troubleOf(vault.put(key("vlt_a"), { n: 2 }, 1))).toBe("StoreTrouble denied");
    await behave({});
    expect(await vault.get(key("vlt_a"))).toEqual({ body: { n: 1 }, revision: 1 });
    expect(await troubleOf(open({ mount: "elsewhere" }).get(key("vlt_a")))).toBe("StoreTrouble away");
    expect(await troubleOf(open({ url: "http://127.0.0.1:9" }).get(key("vlt_a")))).toBe("StoreTrouble away");
  });

  test("a wrong login is denied, and a corrected file is read without a new start", async () => {
    const secretIdFile = join(folder, "secret-id-2");
    await writeFile(secretIdFile, "wrong");
    const vault = open({ login: { ...byRole(), secretIdFile } });
    expect(await troubleOf(vault.get(key("vlt_x")))).toBe("StoreTrouble denied");
    await writeFile(secretIdFile, SECRET_ID);
    expect(await vault.get(key("vlt_x"))).toBeNull();
  });

  test("a token that the server forgot costs one new login, however many ask", async () => {
    const vault = open();
    await vault.get(key("vlt_x"));
    const before = (await calls())["POST auth/approle/login"] ?? 0;
    await behave({ forgetTokens: true });
    await Promise.all(Array.from({ length: 20 }, () => vault.get(key("vlt_x"))));
    expect(((await calls())["POST auth/approle/login"] ?? 0) - before).toBe(1);
    await behave({});
  });

  test("a token is renewed before it ends", async () => {
    await behave({ tokenLifeS: 1 });
    const vault = open();
    await vault.get(key("vlt_x"));
    const logins = (await calls())["POST auth/approle/login"];
    await until(async () => ((await calls())["POST auth/token/renew-self"] ?? 0) >= 3, { what: "three renewals" });
    expect(await vault.get(key("vlt_x"))).toBeNull();
    expect((await calls())["POST auth/approle/login"]).toBe(logins);
    await behave({});
  });

  test("an answer to a renewal that is none ends nothing: it is asked again", async () => {
    await behave({ tokenLifeS: 1, oddRenewals: true });
    const vault = open();
    await vault.get(key("vlt_x"));
    const before = (await calls())["POST auth/token/renew-self"] ?? 0;
    await until(async () => ((await calls())["POST auth/token/renew-self"] ?? 0) > before, { what: "a renewal" });
    await behave({});
    expect(await vault.get(key("vlt_x"))).toBeNull();
  });

  test("a write whose answer was lost is known as its own (S4)", async () => {
    const vault = open();
    expect(await vault.put(key("vlt_lost"), { n: 1 }, 0)).toBe(1);
    await behave({ cutNextWrite: true });
    expect(await vault.put(key("vlt_lost"), { n: 2 }, 1)).toBe(2);
    expect(await vault.get(key("vlt_lost"))).toEqual({ body: { n: 2 }, revision: 2 });
  });

  test("a server that is silent is given up", async () => {
    const proxy = await startTcpProxy(Number(new URL(url).port));
    const vault = open({ url: `http://127.0.0.1:${proxy.port}` });
    await vault.get(key("vlt_x"));
    proxy.swallowAnswers(() => true);
    expect(await troubleOf(vault.get(key("vlt_x")))).toBe("StoreTrouble away");
    await proxy.close();
  });

  test("nothing that was logged holds a token, a secret id or a body", () => {
    expect(logged.length).toBeGreaterThan(3);
    expect(logged.join("\n")).not.toMatch(/canary/);
  });
});
