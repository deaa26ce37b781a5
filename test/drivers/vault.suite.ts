// The contract of a vault store as one suite: what store.ts promises, run against every driver.

import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { RECORD_BYTES_MAX, type RecordKey, type VaultStore } from "../../vault-proxy/store.ts";

export interface OpenedVault {
  readonly store: VaultStore;
  /** The same storage again, as another program or a later start finds it. */
  again(): Promise<VaultStore>;
  close(): Promise<void>;
}

export function describeVaultStore(name: string, make: () => Promise<OpenedVault>): void {
  describe(`the ${name} vault store`, () => {
    let opened: OpenedVault;
    let store: VaultStore;
    // Of its own, so that the suite can run against a storage that others use as well.
    const workspace = `w-${randomBytes(6).toString("hex")}`;
    const key = (id: string, more: Partial<RecordKey> = {}): RecordKey => ({ workspace, kind: "vault", id, ...more });
    beforeAll(async () => {
      opened = await make();
      store = opened.store;
    });
    afterAll(() => opened.close());

    test("a record comes back as it was put, by its revision", async () => {
      expect(await store.get(key("vlt_a"))).toBeNull();
      expect(await store.put(key("vlt_a"), { text: 'é "\u0000" \u2028 \u{1f600}', list: [1, null] }, 0)).toBe(1);
      expect(await store.get(key("vlt_a"))).toEqual({ body: { text: 'é "\u0000" \u2028 \u{1f600}', list: [1, null] }, revision: 1 });
      expect(await store.put(key("vlt_a"), { text: "second" }, 1)).toBe(2);
      expect(await store.get(key("vlt_a"))).toEqual({ body: { text: "second" }, revision: 2 });
    });

    test("a write against another revision changes nothing (T1)", async () => {
      await store.put(key("vlt_b"), { n: 1 }, 0);
      expect(await store.put(key("vlt_b"), { n: 2 }, 0)).toBe("changed");
      expect(await store.put(key("vlt_b"), { n: 2 }, 7)).toBe("changed");
      expect(await store.put(key("vlt_none"), { n: 2 }, 1)).toBe("changed");
      expect([await store.get(key("vlt_b")), await store.get(key("vlt_none"))]).toEqual([{ body: { n: 1 }, revision: 1 }, null]);
    });

    test("of writes at once against one revision, one is done (T1)", async () => {
      const answers = await Promise.all(Array.from({ length: 12 }, (_, n) => store.put(key("vlt_c"), { n }, 0)));
      const winners = answers.flatMap((answer, n) => (answer === 1 ? [n] : []));
      expect(winners).toHaveLength(1);
      expect(answers.filter((answer) => answer === "changed")).toHaveLength(11);
      expect(await store.get(key("vlt_c"))).toEqual({ body: { n: winners[0] }, revision: 1 });
    });

    test("a removed record is gone, a write to it is refused, and it can be made anew", async () => {
      await store.put(key("vlt_d"), { n: 1 }, 0);
      await store.remove(key("vlt_d"));
      await store.remove(key("vlt_d"));
      expect(await store.get(key("vlt_d"))).toBeNull();
      expect(await store.put(key("vlt_d"), { n: 2 }, 1)).toBe("changed");
      expect(await store.put(key("vlt_d"), { n: 3 }, 0)).toBe(1);
    });

    test("ids are those of one workspace and kind, in order", async () => {
      const other = `${workspace}-2`;
      for (const id of ["vlt_z", "vlt_Z", "vlt_0"]) await store.put(key(id, { workspace: other }), {}, 0);
      await store.put(key("vlt_y", { workspace: other, kind: "create" }), {}, 0);
      expect(await store.ids(other, "vault")).toEqual(["vlt_0", "vlt_Z", "vlt_z"]);
      expect(await store.ids(other, "create")).toEqual(["vlt_y"]);
      expect(await store.ids(`${workspace}-3`, "vault")).toEqual([]);
    });

    test("the longest record fits", async () => {
      const body = { text: "x".repeat(RECORD_BYTES_MAX - 20) };
      expect(await store.put(key("vlt_long"), body, 0)).toBe(1);
      expect(await store.get(key("vlt_long"))).toEqual({ body, revision: 1 });
    });

    test("a name that could be a path is refused", async () => {
      for (const id of ["../x", "a/b", "", ".", "a.b", "x".repeat(129)]) await expect(store.get(key(id))).rejects.toThrow("plain names");
      await expect(store.put(key("vlt_e", { workspace: "../w" }), {}, 0)).rejects.toThrow("plain names");
    });

    test("what was answered is there for the next one (T2)", async () => {
      await store.put(key("vlt_f"), { n: 1 }, 0);
      await store.put(key("vlt_f"), { n: 2 }, 1);
      const later = await opened.again();
      expect(await later.get(key("vlt_f"))).toEqual({ body: { n: 2 }, revision: 2 });
      await later.close();
    });
  });
}
