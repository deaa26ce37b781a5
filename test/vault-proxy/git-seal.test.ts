// Seals: what stands in a token's place, who can open it, and what is kept for a session.

import { pino } from "pino";
import { afterAll, beforeAll, expect, test } from "vitest";
import { GitHosts, originOf, pathOf } from "../../vault-proxy/git/hosts.ts";
import { Repositories } from "../../vault-proxy/git/repositories.ts";
import { Seals } from "../../vault-proxy/git/seal.ts";
import { openVaultParts, type VaultParts } from "../support/vault-parts.ts";

let parts: VaultParts;
beforeAll(async () => {
  parts = await openVaultParts(pino({ level: "silent" }));
});
afterAll(() => parts.close());

test("the same token has the same reference, at every proxy of the installation, and only in its workspace", async () => {
  const [one, other] = [new Seals(parts.vaults), new Seals(parts.vaults)];
  const reference = await one.seal("default", "ghp_a");
  expect(reference).toMatch(/^sealed_[0-9A-Za-z_-]+$/);
  expect(await other.seal("default", "ghp_a")).toBe(reference);
  expect(await one.seal("default", "ghp_b")).not.toBe(reference);
  expect(await one.seal("elsewhere", "ghp_a")).not.toBe(reference);
  expect([await other.unseal("default", reference), await other.unseal("elsewhere", reference)]).toEqual(["ghp_a", null]);
});

test("what is no reference, or was changed, opens nothing", async () => {
  const seals = new Seals(parts.vaults);
  const reference = await seals.seal("default", "ghp_a");
  const changed = reference.slice(0, -2) + (reference.endsWith("AA") ? "BB" : "AA");
  for (const odd of ["", "ghp_a", "sealed_", "sealed_AAAA", changed, reference.slice("sealed_".length)])
    expect(await seals.unseal("default", odd)).toBe(null);
});

test("a body comes back with references where the contract has tokens, and otherwise as it was", async () => {
  const seals = new Seals(parts.vaults);
  const body = {
    authorization_token: "ghp_top",
    metadata: { authorization_token: "a word of the client's own" },
    resources: [{ type: "github_repository", authorization_token: "ghp_in", n: 1 }, { type: "x" }, null, { authorization_token: null }],
  };
  const sealed = JSON.parse(await seals.body("default", Buffer.from(JSON.stringify(body))));
  expect(sealed).toEqual({
    ...body,
    authorization_token: await seals.seal("default", "ghp_top"),
    resources: [{ ...body.resources[0], authorization_token: await seals.seal("default", "ghp_in") }, ...body.resources.slice(1)],
  });
  // A reference that a client writes is a token like any other.
  const twice = JSON.parse(await seals.body("default", Buffer.from(JSON.stringify({ authorization_token: sealed.authorization_token }))));
  expect(await seals.unseal("default", twice.authorization_token)).toBe(sealed.authorization_token);
  await expect(seals.body("default", Buffer.from("{"))).rejects.toThrow("not valid JSON");
  for (const odd of ['"a\\nb"', '["ghp_x"]', '{"value":"ghp_x"}', "7"])
    await expect(seals.body("default", Buffer.from(`{"resources":[{"authorization_token":${odd}}]}`))).rejects.toThrow(
      "resources.0.authorization_token: must be",
    );
});

test("more resources than a session can have are refused before any of them is sealed", async () => {
  const seals = new Seals(parts.vaults);
  const body = (count: number) => Buffer.from(JSON.stringify({ resources: Array(count).fill({ authorization_token: "ghp_a" }) }));
  expect(JSON.parse(await seals.body("default", body(50))).resources).toHaveLength(50);
  await expect(seals.body("default", body(51))).rejects.toThrow("resources: at most 50 repositories");
});

test("a session has its own repositories; what is absent is kept, and a young record is not swept", async () => {
  let now = 1_000_000;
  const repositories = new Repositories(parts.vaults, () => now);
  await repositories.put("default", "sesn_a", [
    { url: "u", token: "t" },
    { url: "v", token: null },
  ]);
  await repositories.put("default", "sesn_a", [
    { url: "u", token: undefined },
    { url: "v", token: "w" },
  ]);
  expect(await repositories.of("default", "sesn_a")).toEqual([
    { url: "u", token: "t" },
    { url: "v", token: "w" },
  ]);
  expect([await repositories.of("default", "sesn_b"), await repositories.of("elsewhere", "sesn_a")]).toEqual([[], []]);
  expect(await repositories.sessions("default")).toEqual(["sesn_a"]);
  expect(await repositories.sweep("default", "sesn_a")).toBe(false);
  now += 600_001;
  expect([await repositories.sweep("default", "sesn_a"), await repositories.sweep("default", "sesn_a")]).toEqual([true, false]);
  expect(await repositories.of("default", "sesn_a")).toEqual([]);
});

test("an operator's hosts are origins in one spelling, and their repositories may lie deeper than GitHub's", () => {
  expect(["git.example.com", "https://git.example.com:8443", "http://127.0.0.1:3000/", "HTTPS://Git.Example.com"].map(originOf)).toEqual([
    "https://git.example.com",
    "https://git.example.com:8443",
    "http://127.0.0.1:3000",
    "https://git.example.com",
  ]);
  expect(["ftp://x", "https://user@x", "https://x/path", "", "http://"].map(originOf)).toEqual([null, null, null, null, null]);
  const hosts = new GitHosts(["https://git.example.com"]);
  expect(hosts.refuses("https://git.example.com/group/sub/repo")).toBe(null);
  expect(hosts.refuses("https://github.com/a/.github")).toBe(null);
  expect(hosts.refuses("http://git.example.com/a/b")).toContain("must be https://github.com/owner/repo or https://git.example.com/owner/repo");
  expect(pathOf("https://github.com/a/b")).toBe("/git/github.com/a/b");
});
