// Keys of an installation (gateway/keys.ts): made once, agreed on, and remembered by the store.

import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { importJWK, jwtVerify, SignJWT } from "jose";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { SettingError } from "../../gateway/config.ts";
import { ensureKeys, KEY_FILES } from "../../gateway/keys.ts";
import type { Document, Documents } from "../../session-store/documents.ts";
import { checkInstallation } from "../../session-store/installation.ts";
import { Refusal } from "../../session-store/refusal.ts";
import { proves } from "../support/proves.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-keys-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const dir = () => join(folder, "keys");
const modeOf = async (path: string) => ((await stat(path)).mode & 0o777).toString(8);

describe("keys", () => {
  test("are made with modes for their owner alone, and are the same the next time", async () => {
    const first = await ensureKeys(dir());
    expect(first.apiKey).toMatch(/^mh_[\w-]{43}$/);
    expect((await readdir(dir())).sort()).toEqual([...KEY_FILES].sort());
    expect(await modeOf(dir())).toBe("700");
    for (const name of KEY_FILES) expect(await modeOf(join(dir(), name))).toBe("600");
    expect(await ensureKeys(dir())).toEqual(first);
  });

  test("a grant signed with the private one is checked with the public one, by the same kid", async () => {
    await ensureKeys(dir());
    const read = async (name: string) => JSON.parse(await readFile(join(dir(), name), "utf8"));
    const [secret, open] = [await read("grant.private.jwk"), await read("grant.public.jwk")];
    expect(open).toEqual({ kty: "OKP", crv: "Ed25519", x: secret.x, kid: secret.kid });
    const grant = await new SignJWT({}).setProtectedHeader({ alg: "EdDSA", kid: secret.kid }).sign(await importJWK(secret, "EdDSA"));
    expect((await jwtVerify(grant, await importJWK(open, "EdDSA"))).protectedHeader.kid).toBe(open.kid);
  });

  proves("key:made-once", "twenty starts at once on one folder agree on every key and leave no drafts behind", async () => {
    const made = await Promise.all(Array.from({ length: 20 }, () => ensureKeys(dir())));
    expect(new Set(made.map((keys) => keys.apiKey)).size).toBe(1);
    expect((await readdir(dir())).sort()).toEqual([...KEY_FILES].sort());
  });

  test("the operator's own API key is used as it is and not stored", async () => {
    expect((await ensureKeys(dir(), "an-api-key-of-my-own")).apiKey).toBe("an-api-key-of-my-own");
    expect(await readdir(dir())).not.toContain("api.key");
  });

  test("a damaged file is named, never replaced and never quoted", async () => {
    await ensureKeys(dir());
    await writeFile(join(dir(), "grant.private.jwk"), '{"d":"canary');
    await expect(ensureKeys(dir())).rejects.toThrow(SettingError);
    await expect(ensureKeys(dir())).rejects.toThrow(/^grant\.private\.jwk in MANYHANDS_KEYS_DIR(?!.*canary)/);
  });

  test("a public key that belongs to another private one is refused", async () => {
    await ensureKeys(dir());
    await ensureKeys(join(folder, "other"));
    await writeFile(join(dir(), "grant.public.jwk"), await readFile(join(folder, "other", "grant.public.jwk")));
    await expect(ensureKeys(dir())).rejects.toThrow("does not belong to");
  });

  test("a file that others can read is reported", async () => {
    await ensureKeys(dir());
    await chmod(join(dir(), "hand.key"), 0o644);
    expect((await ensureKeys(dir())).loose).toEqual(["hand.key"]);
  });

  test("a folder that can't be used is a setting's fault", async () => {
    await writeFile(join(folder, "file"), "");
    await expect(ensureKeys(join(folder, "file", "keys"))).rejects.toThrow(/MANYHANDS_KEYS_DIR .*ENOTDIR/);
  });
});

describe("installation", () => {
  /** A place for one document, with the rule that matters here: the first write wins. */
  function place(): Pick<Documents, "get" | "put"> {
    let kept: Document | null = null;
    return {
      get: async () => kept,
      put: async (_workspace, [write]) => {
        if (kept !== null || !write) throw new Refusal("document_changed");
        kept = { kind: write.kind, id: write.id, revision: 1, createdAt: 1, updatedAt: 1, isArchived: false, body: write.body };
        return [kept];
      },
    };
  }

  proves(
    "key:other-installation",
    "the first node's fingerprints are kept; the same keys pass, others are refused with the setting's name",
    async () => {
      await ensureKeys(dir());
      await ensureKeys(join(folder, "other"));
      const store = place();
      await checkInstallation(store, dir());
      await checkInstallation(store, dir());
      const refused = checkInstallation(store, join(folder, "other"));
      await expect(refused).rejects.toMatchObject({ code: "store_unfit", message: expect.stringContaining("MANYHANDS_KEYS_DIR") });
    },
  );

  proves("key:other-installation", "of two first starts at once with different keys one is refused", async () => {
    await ensureKeys(dir());
    await ensureKeys(join(folder, "other"));
    const store = place();
    const blind = { ...store, get: racing(store) };
    const all = await Promise.allSettled([dir(), join(folder, "other")].map((keys) => checkInstallation(blind, keys)));
    expect(all.map((each) => each.status).sort()).toEqual(["fulfilled", "rejected"]);
  });

  /** The first two reads see nothing, as two nodes do that start at once. */
  function racing(store: Pick<Documents, "get" | "put">): Documents["get"] {
    let reads = 0;
    return async (...args) => (++reads <= 2 ? null : store.get(...args));
  }
});
