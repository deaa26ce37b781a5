// The file vault: the contract, and what only files have: keys, locks, forgeries, kills.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, cp, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FileVault } from "../../vault-proxy/drivers/file/driver.ts";
import { type KeySource, makeKey, readKeyring } from "../../vault-proxy/drivers/file/keyring.ts";
import type { RecordKey } from "../../vault-proxy/store.ts";
import { ROOT } from "../support/process.ts";
import { proves } from "../support/proves.ts";
import { until } from "../support/until.ts";
import { describeVaultStore } from "./vault.suite.ts";

const key = (id: string): RecordKey => ({ workspace: "default", kind: "vault", id });
const ownKey = (folder: string): KeySource => ({ type: "file", path: join(folder, "master.key"), isOwn: true });
const open = (folder: string, keys: KeySource = ownKey(folder)) => FileVault.open({ folder, keys, lockWaitMs: 300 });
const newFolder = () => mkdtemp(join(tmpdir(), "manyhands-vault-"));

describeVaultStore("file", async () => {
  const folder = await newFolder();
  const store = await open(folder);
  return {
    store,
    again: async () => {
      await store.close();
      return open(folder);
    },
    close: async () => {
      await store.close();
      await rm(folder, { recursive: true });
    },
  };
});

describe("a vault's folder", () => {
  let folder: string;
  const opened: FileVault[] = [];
  const reopen = async (keys?: KeySource): Promise<FileVault> => {
    const vault = await open(folder, keys);
    opened.push(vault);
    return vault;
  };
  beforeEach(async () => {
    folder = await newFolder();
  });
  afterEach(async () => {
    for (const vault of opened.splice(0)) await vault.close();
    await rm(folder, { recursive: true });
  });
  const fileOf = (id: string) => join(folder, "vault", "default", id);

  test("everything in it is for its owner alone, and the key was made once", async () => {
    const vault = await reopen();
    await vault.put(key("vlt_a"), { secret: "canary" }, 0);
    const made = await readFile(join(folder, "master.key"), "utf8");
    await vault.close();
    await reopen();
    expect(await readFile(join(folder, "master.key"), "utf8")).toBe(made);
    const modes = await Promise.all([join(folder, "master.key"), fileOf("vlt_a")].map(async (path) => (await stat(path)).mode & 0o777));
    expect(modes).toEqual([0o600, 0o600]);
    expect((await stat(join(folder, "vault"))).mode & 0o777).toBe(0o700);
  });

  test("there is one owner at a time", async () => {
    await reopen();
    await expect(open(folder)).rejects.toThrow("Another vault proxy uses");
  });

  test("a lost key, another key and a key that others can read stop the start with a sentence and change nothing", async () => {
    const vault = await reopen();
    await vault.put(key("vlt_a"), { n: 1 }, 0);
    await vault.close();
    const path = join(folder, "master.key");
    const right = await readFile(path, "utf8");
    await chmod(path, 0o640);
    await expect(open(folder)).rejects.toThrow("readable by group or others");
    await chmod(path, 0o600);
    await rm(path);
    await expect(open(folder)).rejects.toThrow("can't be read (ENOENT)");
    await expect(open(folder, { type: "text", text: makeKey().bytes.toString("hex"), name: "X" })).rejects.toThrow("is sealed by the key");
    await expect(open(folder, { type: "text", text: "canary-no-key", name: "X" })).rejects.toThrow(/^(?!.*canary).*X holds something else/);
    await writeFile(path, right, { mode: 0o600 });
    expect(await (await reopen()).get(key("vlt_a"))).toEqual({ body: { n: 1 }, revision: 1 });
  });

  test("the key can come from a command, whose failure is told without its words", async () => {
    const hex = makeKey().bytes.toString("hex");
    const vault = await reopen({ type: "command", command: `printf ${hex}` });
    await vault.put(key("vlt_a"), { n: 1 }, 0);
    await vault.close();
    await expect(open(folder, { type: "command", command: "echo canary; echo canary >&2; exit 3" })).rejects.toThrow(
      /^MANYHANDS_VAULT_KEY_COMMAND failed \(3\)\.$/,
    );
    expect(await (await reopen({ type: "text", text: hex, name: "X" })).get(key("vlt_a"))).toEqual({ body: { n: 1 }, revision: 1 });
  });

  test("a new key in front seals everything anew; afterwards the old one opens nothing", async () => {
    const [before, after] = [makeKey(), makeKey()].map(({ bytes }) => bytes.toString("base64url"));
    const text = (...keys: (string | undefined)[]): KeySource => ({ type: "text", text: keys.join("\n"), name: "X" });
    const vault = await reopen(text(before));
    for (let n = 0; n < 5; n += 1) await vault.put(key(`vlt_${n}`), { n }, 0);
    const bodies = async () => Promise.all([0, 1, 2, 3, 4].map(async (n) => JSON.parse(await readFile(fileOf(`vlt_${n}`), "utf8")).body));
    const sealed = await bodies();
    await vault.close();
    await expect(open(folder, text(after))).rejects.toThrow("is sealed by the key");
    let rotated = -1;
    const rotating = await FileVault.open({
      folder,
      keys: text(after, before),
      onRotated: (records) => {
        rotated = records;
      },
    });
    opened.push(rotating);
    await until(() => rotated >= 0);
    expect([rotated, await bodies()]).toEqual([5, sealed]);
    await rotating.close();
    await expect(open(folder, text(before))).rejects.toThrow("is sealed by the key");
    expect(await (await reopen(text(after))).get(key("vlt_3"))).toEqual({ body: { n: 3 }, revision: 1 });
  });

  test("a record that was moved, rolled to another revision or changed in any byte does not open (T3)", async () => {
    const vault = await reopen();
    await vault.put(key("vlt_a"), { secret: "canary" }, 0);
    await vault.put(key("vlt_b"), { secret: "other" }, 0);
    const good = await readFile(fileOf("vlt_a"), "utf8");
    const tries: [string, string][] = [["moved", await readFile(fileOf("vlt_b"), "utf8")]];
    const envelope = JSON.parse(good) as Record<string, string>;
    tries.push(["another revision", JSON.stringify({ ...envelope, revision: 2 })]);
    for (const part of ["key", "body"]) {
      const bytes = Buffer.from(envelope[part] ?? "", "base64");
      for (const at of [0, 12, bytes.length - 1]) {
        const bent = Buffer.from(bytes);
        bent[at] = (bent[at] ?? 0) ^ 1;
        tries.push([`${part} at ${at}`, JSON.stringify({ ...envelope, [part]: bent.toString("base64") })]);
      }
    }
    for (const cut of [0, 1, good.length - 1]) tries.push([`cut at ${cut}`, good.slice(0, cut)]);
    for (const [what, text] of tries) {
      await writeFile(fileOf("vlt_a"), text);
      const thrown: unknown = await vault.get(key("vlt_a")).catch((error: unknown) => error);
      expect([what, thrown]).toEqual([what, expect.objectContaining({ name: "StoreTrouble", reason: "unreadable" })]);
      expect(JSON.stringify(thrown)).not.toContain("canary");
    }
  });

  test("a copy of the folder without its key tells nothing", async () => {
    const vault = await reopen();
    await vault.put(key("vlt_a"), { secret: "canary-in-a-copy" }, 0);
    const copy = await newFolder();
    await cp(join(folder, "vault"), copy, { recursive: true });
    for (const { parentPath, name, isFile } of (await readdir(copy, { recursive: true, withFileTypes: true })).map((entry) => ({
      parentPath: entry.parentPath,
      name: entry.name,
      isFile: entry.isFile(),
    })))
      if (isFile) expect((await readFile(join(parentPath, name))).includes("canary-in-a-copy")).toBe(false);
    await rm(copy, { recursive: true });
  });

  proves("credential:kept", "killed in the middle of writes, it has what was answered, whole, and no draft (T2)", async () => {
    const acknowledged = new Map<string, number>();
    for (let round = 0; round < 5; round += 1) {
      const child: ChildProcess = spawn(process.execPath, [join(ROOT, "dist/test/drivers/vault-child.js"), folder], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      let lines = 0;
      if (child.stdout)
        createInterface({ input: child.stdout }).on("line", (line) => {
          const [id = "", n] = line.split(" ");
          acknowledged.set(id, Number(n));
          lines += 1;
        });
      await until(() => lines >= 20 + round * 7, { timeoutMs: 60_000 });
      child.kill("SIGKILL");
      await once(child, "close");
    }
    const vault = await reopen();
    expect(acknowledged.size).toBeGreaterThan(3);
    for (const [id, n] of acknowledged) {
      const found = await vault.get(key(id));
      // The write after the last one that was answered may be there as well, whole.
      const body = found?.body as { n: number } | undefined;
      expect([id, [n, n + 1].includes(body?.n ?? -1)]).toEqual([id, true]);
    }
    expect((await readdir(join(folder, "vault", "default"))).filter((name) => name.startsWith("."))).toEqual([]);
  });

  test("`manyhands vault rotate` changes the key of a stopped vault, and refuses while it runs", { timeout: 120_000 }, async () => {
    const data = folder;
    folder = join(data, "vault");
    const rotate = async () => {
      const child = spawn(process.execPath, [join(ROOT, "dist/gateway/cli.js"), "vault", "rotate"], {
        env: { PATH: process.env.PATH, MANYHANDS_DATA_DIR: data },
        stdio: ["ignore", "pipe", "pipe"],
      });
      let said = "";
      for (const pipe of [child.stdout, child.stderr]) pipe.on("data", (piece: Buffer) => (said += piece.toString()));
      const [code] = await once(child, "close");
      return [code, said];
    };
    const vault = await reopen();
    await vault.put(key("vlt_a"), { n: 1 }, 0);
    const before = await readFile(join(folder, "master.key"), "utf8");
    expect(await rotate()).toEqual([2, expect.stringContaining("Another vault proxy uses")]);
    await vault.close();
    expect(await rotate()).toEqual([0, expect.stringContaining("1 record")]);
    const after = await readFile(join(folder, "master.key"), "utf8");
    expect([after === before, after.trim().split("\n").length]).toEqual([false, 1]);
    expect((await readKeyring(ownKey(folder), false)).current.kid).toMatch(/^[0-9a-f]{16}$/);
    const again = await reopen();
    expect(await again.get(key("vlt_a"))).toEqual({ body: { n: 1 }, revision: 1 });
    await again.close();
    folder = data;
  });
});
