// Authorizations that a person is in the middle of, at several vault proxies over one storage, and after a restart.

import { afterEach, expect, test } from "vitest";
import { failureOf, type Person, person, World } from "../support/oauth-world.ts";
import { ownVault } from "../support/own-vault.ts";

const opened: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of opened.splice(0)) await each.close();
});

async function scene(now?: () => number) {
  const world = await World.start();
  const store = ownVault();
  const proxy = (): Person => {
    const made = person([world.host], { store, ...(now === undefined ? {} : { now }) });
    opened.push(made);
    return made;
  };
  const [one, other] = [proxy(), proxy()];
  opened.push(world, store);
  const server = `${world.origin}/mcp`;
  const begun = async (at = one, owner = "somebody") => {
    const { authorizationUrl, state } = await at.start(server, { owner });
    await fetch(authorizationUrl, { redirect: "manual" });
    return state;
  };
  const finish = (at: Person, state: string, owner = "somebody") =>
    failureOf(at.connector.finish({ state, owner, code: "code-1", iss: null, error: null }, async () => {}));
  return { world, store, one, other, server, begun, finish };
}

test("what was begun at one is finished at another, once, and nothing of it stays", async () => {
  const { store, other, one, begun, finish } = await scene();
  const state = await begun();
  expect(await finish(other, state)).toMatchObject({ accessToken: "access-1" });
  expect(await finish(one, state)).toBe("unknown_state");
  expect(await store.ids("manyhands", "authorization")).toEqual([]);
});

test("of many that show one state at once, at two proxies, one has its tokens", async () => {
  const { world, one, other, begun, finish } = await scene();
  const state = await begun();
  const came = await Promise.all(Array.from({ length: 10 }, (_, n) => finish(n % 2 === 0 ? one : other, state)));
  expect(came.filter((each) => each === "unknown_state")).toHaveLength(9);
  expect(world.of("POST /token")).toHaveLength(1);
});

test("a state whose end was moved is nobody's", async () => {
  const { one, begun, finish } = await scene();
  const state = await begun();
  const [end = "", secret = ""] = state.split(".");
  const later = (Number.parseInt(end, 36) + 1).toString(36);
  for (const forged of [`${later}.${secret}`, `0.${secret}`, `zzzzzzzzz.${secret}`, `.${secret}`, secret, `${end}.`, `${end}.${secret}/../x`])
    expect(await finish(one, forged)).toBe("unknown_state");
  expect(await finish(one, state)).toMatchObject({ accessToken: "access-1" });
});

test("a record's name gives away no state", async () => {
  const { store, begun } = await scene();
  const [, secret = ""] = (await begun()).split(".");
  const [id = ""] = await store.ids("manyhands", "authorization");
  expect(id).toMatch(/^\d{11}_[0-9a-f]{20}_[0-9a-f]{64}$/);
  expect(id).not.toContain(secret);
});

test("the oldest of one owner's makes room for the newest, and what is over is cleared away", async () => {
  let now = 1_000_000_000;
  const { store, one, begun, finish } = await scene(() => now);
  const [first, second] = [await begun(), await begun(one, "somebody else")];
  for (let count = 0; count < 20; count += 1) {
    now += 1_000;
    await begun();
  }
  expect(await store.ids("manyhands", "authorization")).toHaveLength(21);
  expect(await finish(one, first)).toBe("unknown_state");
  expect(await finish(one, second, "somebody else")).not.toBe("unknown_state");
  now += 700_000;
  await begun();
  expect(await store.ids("manyhands", "authorization")).toHaveLength(1);
});
