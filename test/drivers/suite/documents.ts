// Documents: K1 to K3.

import { expect, test } from "vitest";
import type { Document, DocumentQuery, DocumentWrite } from "../../../session-store/documents.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import { codeOf, type Open } from "./kit.ts";

const all: DocumentQuery = { order: "asc", limit: 100, includeArchived: true };
const write = (id: string, replaces: number, fields: Partial<DocumentWrite> = {}): DocumentWrite => ({
  kind: "agent",
  id,
  body: { version: replaces + 1 },
  replaces,
  ...fields,
});
const put = (store: SessionStore, ...writes: DocumentWrite[]) => store.put("default", writes);

export function describeDocuments(open: Open): void {
  test("a document is put, read and replaced, revision by revision", async () => {
    const { store, peer = store } = await open();
    const [first] = await put(store, write("a", 0, { body: { text: "ü \u2028 🙂", list: [1, null, { x: true }] } }));
    expect(first).toEqual({
      kind: "agent",
      id: "a",
      revision: 1,
      createdAt: first?.createdAt,
      updatedAt: first?.createdAt,
      isArchived: false,
      body: { text: "ü \u2028 🙂", list: [1, null, { x: true }] },
    });
    expect(await peer.get("default", "agent", "a")).toEqual(first);
    const [second] = await put(store, write("a", 1, { isArchived: true }));
    expect(second).toEqual({ ...first, revision: 2, updatedAt: second?.updatedAt, isArchived: true, body: { version: 2 } });
    expect(second?.updatedAt).toBeGreaterThanOrEqual(first?.updatedAt ?? 0);
    expect(await peer.get("default", "agent", "a")).toEqual(second);
    const [third] = await put(store, write("a", 2));
    expect(third).toMatchObject({ revision: 3, isArchived: false });
  });

  test("a document that is not there reads as null, and workspaces and kinds are apart", async () => {
    const { store } = await open();
    await put(store, write("a", 0));
    expect(await store.get("default", "agent", "b")).toBeNull();
    expect(await store.get("default", "environment", "a")).toBeNull();
    expect(await store.get("elsewhere", "agent", "a")).toBeNull();
    expect(await store.list("elsewhere", "agent", all)).toEqual([]);
    await store.put("elsewhere", [write("a", 0, { body: "other" })]);
    expect(await store.get("default", "agent", "a")).toMatchObject({ body: { version: 1 } });
  });

  test("a write that replaces another revision than the one there is refused", async () => {
    const { store } = await open();
    await put(store, write("a", 0));
    for (const replaces of [0, 2, 7]) expect(await codeOf(put(store, write("a", replaces)))).toBe("document_changed");
    expect(await codeOf(put(store, write("absent", 1)))).toBe("document_changed");
    expect(await store.get("default", "agent", "absent")).toBeNull();
    expect(await store.get("default", "agent", "a")).toMatchObject({ revision: 1 });
  });

  test("of many writers of one revision one wins", async () => {
    const { store, peer = store } = await open();
    await put(store, write("a", 0));
    const codes = await Promise.all(Array.from({ length: 8 }, (_, index) => codeOf(put(index % 2 ? store : peer, write("a", 1, { body: index })))));
    expect(codes.toSorted()).toEqual([...Array(7).fill("document_changed"), "none"]);
    expect(await store.get("default", "agent", "a")).toMatchObject({ revision: 2, body: codes.indexOf("none") });
  });

  test("writes of one put are all done or none", async () => {
    const { store } = await open();
    await put(store, write("a", 0));
    expect(await codeOf(put(store, write("b", 0), write("a", 1), write("c", 5)))).toBe("document_changed");
    expect(await store.list("default", "agent", all)).toMatchObject([{ id: "a", revision: 1 }]);
    const done = await put(store, write("b", 0), write("a", 1), write("x", 0, { kind: "environment" }));
    expect(done).toMatchObject([
      { kind: "agent", id: "b", revision: 1 },
      { kind: "agent", id: "a", revision: 2 },
      { kind: "environment", id: "x", revision: 1 },
    ]);
    expect(await store.list("default", "agent", all)).toEqual([done[1], done[0]]);
  });

  test("a put that requires documents is refused when one is absent or archived", async () => {
    const { store } = await open();
    await put(store, write("here", 0), write("old", 0, { isArchived: true }));
    const putWith = (...ids: string[]) => store.put("default", [write("a", 0)], { requires: ids.map((id) => ({ kind: "agent", id })) });
    expect(await codeOf(putWith("here", "absent"))).toBe("document_not_found");
    expect(await codeOf(putWith("here", "old"))).toBe("document_not_found");
    expect(await store.get("default", "agent", "a")).toBeNull();
    expect(await putWith("here")).toMatchObject([{ id: "a", revision: 1 }]);
  });

  test("a name is held by one document of its kind in a workspace", async () => {
    const { store } = await open();
    await put(store, write("a", 0, { name: "Ada" }));
    expect(await codeOf(put(store, write("b", 0, { name: "Ada" })))).toBe("name_taken");
    expect(await store.get("default", "agent", "b")).toBeNull();
    expect(await codeOf(put(store, write("c", 0, { name: "Bob" }), write("d", 0, { name: "Bob" })))).toBe("name_taken");
    expect(await store.get("default", "agent", "c")).toBeNull();
    await put(store, write("a", 0, { kind: "environment", name: "Ada" }));
    await store.put("elsewhere", [write("z", 0, { name: "Ada" })]);
    await put(store, write("a", 1, { name: "Ada" }));
    expect(await store.list("default", "agent", all)).toMatchObject([{ id: "a", revision: 2 }]);
  });

  test("a name is given back by a write without it, by another name and by discarding", async () => {
    const { store } = await open();
    await put(store, write("a", 0, { name: "one" }));
    await put(store, write("a", 1, { name: null }));
    await put(store, write("b", 0, { name: "one" }));
    await put(store, write("b", 1, { name: "two" }));
    await put(store, write("c", 0, { name: "one" }));
    await put(store, write("c", 1));
    await put(store, write("d", 0, { name: "one" }));
    await store.discard("default", "agent", "d");
    await put(store, write("e", 0, { name: "one" }));
    expect(await codeOf(put(store, write("f", 0, { name: "two" })))).toBe("name_taken");
    // A refused write gives nothing back.
    expect(await codeOf(put(store, write("b", 2, { name: null }), write("e", 9)))).toBe("document_changed");
    expect(await codeOf(put(store, write("f", 0, { name: "two" })))).toBe("name_taken");
  });

  test("a discarded document is gone, and its id can be used anew", async () => {
    const { store } = await open();
    await put(store, write("a", 0), write("b", 0));
    await put(store, write("a", 1));
    await store.discard("default", "agent", "a");
    expect(await store.get("default", "agent", "a")).toBeNull();
    expect(await store.list("default", "agent", all)).toMatchObject([{ id: "b" }]);
    expect(await codeOf(store.discard("default", "agent", "a"))).toBe("document_not_found");
    expect(await put(store, write("a", 0))).toMatchObject([{ id: "a", revision: 1 }]);
    expect(await store.list("default", "agent", all)).toMatchObject([{ id: "b" }, { id: "a" }]);
  });

  test("a document in use is not discarded: while any document of the given kind is there", async () => {
    const { store } = await open();
    await put(store, write("env", 0, { kind: "environment" }), write("s1", 0, { kind: "use:env" }), write("s2", 0, { kind: "use:env" }));
    await store.put("elsewhere", [write("s1", 0, { kind: "use:other" })]);
    const discard = () => store.discard("default", "environment", "env", { unlessAny: "use:env" });
    expect(await codeOf(discard())).toBe("document_in_use");
    await store.discard("default", "use:env", "s1");
    expect(await codeOf(discard())).toBe("document_in_use");
    await store.discard("default", "use:env", "s2");
    await discard();
    expect(await store.get("default", "environment", "env")).toBeNull();
    expect(await codeOf(discard())).toBe("document_not_found");
    await put(store, write("env", 0, { kind: "environment" }));
    await store.discard("default", "environment", "env", { unlessAny: "use:other" });
  });

  test("times of making grow strictly within a workspace and kind, and order the list", async () => {
    const { store, peer = store } = await open();
    const made = await Promise.all(
      Array.from({ length: 20 }, (_, index) => put(index % 2 ? store : peer, write(`a${index}`, 0), write(`b${index}`, 0))),
    );
    const listed = await store.list("default", "agent", all);
    expect(listed.map(({ id }) => id).toSorted()).toEqual(
      made
        .flat()
        .map(({ id }) => id)
        .toSorted(),
    );
    for (const [index, document] of listed.entries()) expect(document.createdAt).toBeGreaterThan(listed[index - 1]?.createdAt ?? 0);
    await put(store, write("a3", 1));
    expect((await store.list("default", "agent", all)).map(({ id }) => id)).toEqual(listed.map(({ id }) => id));
  });

  test("a list goes both ways, page by page, bounded by time, with archived documents only when asked for", async () => {
    const { store } = await open();
    for (let index = 0; index < 7; index++) await put(store, write(`d${index}`, 0, { isArchived: index === 3 }));
    const everything = await store.list("default", "agent", all);
    const live = everything.filter(({ id }) => id !== "d3");
    expect(everything.map(({ id }) => id)).toEqual(["d0", "d1", "d2", "d3", "d4", "d5", "d6"]);
    expect(await store.list("default", "agent", { order: "asc", limit: 100 })).toEqual(live);

    for (const [order, wanted] of [["asc", live] as const, ["desc", live.toReversed()] as const]) {
      const paged: Document[] = [];
      for (let page = 0; page < 4; page++) {
        const last = paged.at(-1);
        const beyond = last && { createdAt: last.createdAt, id: last.id };
        const found = await store.list("default", "agent", { order, limit: 2, ...(beyond ? { beyond } : {}) });
        expect(found).toHaveLength(page < 3 ? 2 : 0);
        paged.push(...found);
      }
      expect(paged).toEqual(wanted);
    }
    const [from, to] = [everything[1]?.createdAt ?? 0, everything[4]?.createdAt ?? 0];
    const idsOf = async (createdAt: NonNullable<DocumentQuery["createdAt"]>) =>
      (await store.list("default", "agent", { ...all, createdAt })).map(({ id }) => id);
    expect(await idsOf({ gt: from, lt: to })).toEqual(["d2", "d3"]);
    expect(await idsOf({ gte: from, lte: to })).toEqual(["d1", "d2", "d3", "d4"]);
  });

  test("documents are there after the store was closed and opened again", async () => {
    const { store, reopen } = await open();
    const [made] = await put(store, write("a", 0, { name: "Ada" }));
    const again = reopen ? await reopen() : store;
    expect(await again.get("default", "agent", "a")).toEqual(made);
    expect(await codeOf(put(again, write("b", 0, { name: "Ada" })))).toBe("name_taken");
    const [next] = await put(again, write("b", 0));
    expect(next?.createdAt).toBeGreaterThan(made?.createdAt ?? 0);
  });
}
