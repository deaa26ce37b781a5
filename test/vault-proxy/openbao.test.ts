// OpenBao as docker-compose.yml starts it. There is no such server here: its set-up is held against the driver (which calls it makes), against what the other
// services of the file are told, and its key-making is run.

import { execFile } from "node:child_process";
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import pino from "pino";
import { afterEach, expect, test } from "vitest";
import { readConfig } from "../../vault-proxy/config.ts";
import { ServerVault } from "../../vault-proxy/drivers/server/driver.ts";
import { type ComposeFile, readCompose } from "../support/compose.ts";
import { ROOT } from "../support/process.ts";
import { ROOT_TOKEN, startVaultDouble } from "../support/vault-double/server.ts";

const run = promisify(execFile);
const folders: string[] = [];
afterEach(async () => {
  for (const folder of folders.splice(0)) {
    await chmod(folder, 0o700);
    await rm(folder, { recursive: true, force: true });
  }
});
async function folder(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), "manyhands-openbao-"));
  folders.push(made);
  return made;
}

const serviceOf = (file: ComposeFile, name: string) => {
  const found = file.services[name];
  if (found === undefined) throw new Error(`There is no service ${name}.`);
  return found;
};
const setUp = () => readFile(join(ROOT, "vault-proxy/drivers/server/openbao.hcl"), "utf8");
/** `name = "value"`, wherever it stands. */
const valuesOf = (text: string, name: string): string[] =>
  [...text.matchAll(new RegExp(`\\b${name}\\s*=\\s*("(?:[^"\\\\]|\\\\.)*")`, "g"))].map(([, value = '""']) => String(JSON.parse(value)));

interface Rule {
  readonly path: string;
  readonly capabilities: readonly string[];
}
async function rules(): Promise<readonly Rule[]> {
  const [policy = ""] = valuesOf(await setUp(), "policy");
  return [...policy.matchAll(/path "([^"]+)" \{ capabilities = (\[[^\]]*\]) \}/g)].map(([, path = "", list = "[]"]) => ({
    path,
    capabilities: JSON.parse(list) as string[],
  }));
}

/** What a server asks of a policy for a request: a write needs one of two, by whether something is there. */
function wanted(method: string, isList: boolean): readonly string[] {
  if (isList) return ["list"];
  return { GET: ["read"], POST: ["create", "update"], DELETE: ["delete"] }[method] ?? [method];
}

test("its policy allows what the driver does, and nothing that it does not do", async () => {
  const double = await startVaultDouble();
  const asked: { path: string; capabilities: readonly string[] }[] = [];
  const recorder = createServer(async (req, res) => {
    const pieces: Buffer[] = [];
    for await (const piece of req) pieces.push(piece);
    const url = new URL(req.url ?? "/", double.url);
    asked.push({ path: url.pathname.replace("/v1/", ""), capabilities: wanted(req.method ?? "", url.searchParams.has("list")) });
    const token = String(req.headers["x-vault-token"] ?? "");
    const body = req.method === "POST" ? { body: Buffer.concat(pieces) } : {};
    const answer = await fetch(url, { method: req.method ?? "GET", headers: { "x-vault-token": token }, ...body });
    res.writeHead(answer.status, { "content-type": "application/json" }).end(Buffer.from(await answer.arrayBuffer()));
  });
  await new Promise<void>((resolve) => recorder.listen(0, "127.0.0.1", resolve));
  const tokenFile = join(await folder(), "token");
  await writeFile(tokenFile, ROOT_TOKEN);
  const config = readConfig({ VAULT_ADDR: `http://127.0.0.1:${(recorder.address() as AddressInfo).port}`, MANYHANDS_VAULT_TOKEN_FILE: tokenFile });
  if (config.server === null) throw new Error("there is no server");
  const store = new ServerVault(config.server, pino({ level: "silent" }));
  const key = { workspace: "default", kind: "vault", id: "vlt_1" } as const;
  expect(await store.get(key)).toBeNull();
  expect(await store.put(key, { n: 1 }, 0)).toBe(1);
  expect(await store.put(key, { n: 2 }, 1)).toBe(2);
  expect(await store.ids("default", "vault")).toEqual(["vlt_1"]);
  await store.remove(key);
  await store.close();
  recorder.close();
  await double.close();

  const known = await rules();
  const used = new Set<string>();
  const own = asked.filter(({ path }) => !path.startsWith("auth/token/"));
  for (const { path, capabilities } of own) {
    const rule = known.find((each) => path.startsWith(each.path.replace(/\*$/, "")));
    expect(rule?.capabilities, path).toEqual(expect.arrayContaining([...capabilities]));
    for (const each of capabilities) used.add(`${rule?.path} ${each}`);
  }
  // The policy `default` has the token's own paths.
  expect(asked.length - own.length).toBeGreaterThan(0);
  expect([...used].toSorted()).toEqual(known.flatMap(({ path, capabilities }) => capabilities.map((each) => `${path} ${each}`)).toSorted());
});

test("the vault proxy of docker-compose.yml uses it where MANYHANDS_OPENBAO says so, by the login that it was set up with", async () => {
  const file = await readCompose({ MANYHANDS_OPENBAO: "http://openbao:8200" });
  const { environment, volumes, networks } = serviceOf(file, "vault-proxy");
  const openbao = serviceOf(file, "openbao");
  const server = readConfig({ ...environment }).server;
  expect(server).toMatchObject({ url: "http://openbao:8200", mount: "secret", prefix: "manyhands", login: { type: "approle", mount: "approle" } });
  expect(readConfig({ ...serviceOf(await readCompose(), "vault-proxy").environment }).server).toBeNull();

  const text = await setUp();
  const login = server?.login.type === "approle" ? [server.login.roleIdFile, server.login.secretIdFile] : [];
  expect(valuesOf(text, "path").filter((path) => path.startsWith("/run/"))).toEqual(login);
  expect(valuesOf(text, "path")).toEqual(expect.arrayContaining(["sys/mounts/secret", "sys/auth/approle"]));
  expect([volumes, openbao.volumes].map((list) => list.includes("openbao-login:/run/openbao:ro"))).toEqual([true, true]);
  // They alone share a network, and nobody else is on it.
  const there = Object.entries(file.services).filter(([, each]) => each.networks.includes("vaults"));
  expect([there.map(([name]) => name), networks.includes("vaults"), openbao.networks]).toEqual([["openbao", "vault-proxy"], true, ["vaults"]]);
});

test("it starts on request alone, unsealed by a file that only it is given, on a root that can't be written", async () => {
  const file = await readCompose();
  const openbao = serviceOf(file, "openbao");
  expect(openbao).toMatchObject({ profiles: ["openbao"], secrets: ["openbao.unseal.key"], read_only: true, cap_drop: ["ALL"], ports: [] });
  expect(openbao.image).toMatch(/^openbao\/openbao:\d+\.\d+\.\d+$/);
  expect(serviceOf(file, "openbao-keys")).toMatchObject({ image: openbao.image, profiles: ["setup"], network_mode: "none" });
  const text = await setUp();
  expect(valuesOf(text, "current_key")).toEqual(["file:///run/secrets/openbao.unseal.key"]);
  const folders = valuesOf(text, "path").filter((path) => path.startsWith("/openbao/"));
  expect(openbao.volumes).toEqual(expect.arrayContaining(folders.map((path) => `openbao:${path}`)));
  const users = Object.entries(file.services).filter(([, { secrets }]) => secrets.includes("openbao.unseal.key"));
  expect(users.map(([name]) => name)).toEqual(["openbao"]);
});

test("its keys are made once, for those who read them", async () => {
  const { command } = serviceOf(await readCompose(), "openbao-keys");
  const [keys, login] = [await folder(), await folder()];
  const [shell = "", flags = "", script = ""] = command;
  const { username } = userInfo();
  const { stdout: group } = await run("id", ["-gn"]);
  const here = script
    .replaceAll("/keys", keys)
    .replaceAll("/login", login)
    .replaceAll("1000:1000", username)
    .replace("chown openbao", `chown ${username}`)
    .replace("chgrp -R openbao", `chgrp -R ${group.trim()}`);
  const files = [join(keys, "openbao.unseal.key"), join(login, "role-id"), join(login, "secret-id")];
  const read = () => Promise.all(files.map((path) => readFile(path, "latin1")));
  await run(shell, [flags, here]);
  const made = await read();
  expect(made[0]).toHaveLength(32);
  for (const each of made.slice(1)) expect(each).toMatch(/^[0-9a-f]{64}$/);
  expect(new Set(made).size).toBe(3);
  const modes = await Promise.all([...files, login].map(async (path) => ((await stat(path)).mode & 0o777).toString(8)));
  expect(modes).toEqual(["400", "440", "440", "550"]);
  await run(shell, [flags, here]);
  expect(await read()).toEqual(made);
});
