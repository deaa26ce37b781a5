// Grants (vault-proxy/grant.ts): whose they are, how long they last, and how they end early.

import { writeFileSync } from "node:fs";
import { request } from "undici";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Grants } from "../../vault-proxy/grant.ts";
import { type ScriptedModel, startModel } from "../support/model/server.ts";
import { KEY, Signer, startProxy, type TestProxy } from "./proxy.ts";

let signer: Signer;
beforeEach(() => {
  signer = new Signer();
});
afterEach(() => signer.remove());

const bearer = async (claims = {}) => `Bearer ${await signer.sign(claims)}`;

describe("grants", () => {
  test("a good one names its session, fence and vaults, checked once or remembered", async () => {
    await signer.rotate("k1");
    const grants = new Grants(signer.file, () => {});
    const authorization = await bearer({ sub: "sesn_a", fence: 7, vaults: ["vlt_1"], use: ["model", "mcp"] });
    const grant = { sessionId: "sesn_a", fence: 7, vaults: ["vlt_1"], use: ["model", "mcp"], workspace: null };
    expect(await grants.check(authorization, "model")).toEqual({ type: "granted", grant });
    expect(await grants.check(authorization, "mcp")).toEqual({ type: "granted", grant });
    expect(await grants.check(authorization, "git")).toEqual({ type: "refused", reason: "other_use" });
  });

  test("a remembered one ends when it says, five seconds of tolerance included", async () => {
    await signer.rotate("k1");
    let now = Date.now();
    const grants = new Grants(
      signer.file,
      () => {},
      () => now,
    );
    const authorization = await bearer({ exp: Math.floor(now / 1000) + 60 });
    expect((await grants.check(authorization, "model")).type).toBe("granted");
    now += 64_000;
    expect((await grants.check(authorization, "model")).type).toBe("granted");
    now += 3_000;
    expect(await grants.check(authorization, "model")).toEqual({ type: "refused", reason: "expired" });
  });

  test("a new signing key counts at once and the old one no more", async () => {
    await signer.rotate("k1");
    const grants = new Grants(signer.file, () => {});
    const old = await bearer();
    expect((await grants.check(old, "model")).type).toBe("granted");
    await signer.rotate("k2");
    expect((await grants.check(await bearer(), "model")).type).toBe("granted");
    expect(await grants.check(old, "model")).toEqual({ type: "refused", reason: "invalid" });
  });

  test("without a key file, or with one that holds a private key, it is unready and says why once", async () => {
    const reasons: string[] = [];
    const grants = new Grants(signer.file, (reason) => reasons.push(reason));
    expect(await grants.check("Bearer a.b.c", "model")).toEqual({ type: "refused", reason: "unready" });
    expect(grants.isReady()).toBe(false);
    writeFileSync(signer.file, JSON.stringify({ kty: "OKP", crv: "Ed25519", x: "eA", d: "canary-private" }));
    await expect.poll(() => [grants.isReady(), ...reasons], { timeout: 8_000 }).toEqual([false, "ENOENT", "holds a private key"]);
    writeFileSync(signer.file, '{"kty":"canary');
    await expect.poll(() => [grants.isReady(), ...reasons], { timeout: 8_000 }).toEqual([false, "ENOENT", "holds a private key", "is not JSON"]);
  });

  test("a revoked session's grants are refused until the last of them has ended by itself", async () => {
    await signer.rotate("k1");
    let now = Date.now();
    const grants = new Grants(
      signer.file,
      () => {},
      () => now,
    );
    const [revoked, other] = [await bearer({ sub: "sesn_a" }), await bearer({ sub: "sesn_b" })];
    expect((await grants.check(revoked, "model")).type).toBe("granted");
    expect(grants.revoke("sesn_a")).toBe(now + 610_000);
    expect(await grants.check(revoked, "model")).toEqual({ type: "refused", reason: "revoked" });
    expect((await grants.check(other, "model")).type).toBe("granted");
    now += 620_000;
    expect((await grants.check(await bearer({ sub: "sesn_a", exp: Math.floor(now / 1000) + 60 }), "model")).type).toBe("granted");
  });
});

describe("POST /revoke", () => {
  let model: ScriptedModel;
  let proxy: TestProxy;
  beforeEach(async () => {
    await signer.rotate("k1");
    model = await startModel({ key: KEY });
    proxy = await startProxy(signer, model.url);
  });
  afterEach(async () => {
    await proxy.close();
    await model.close();
  });
  const revoke = async (body: string, claims: Record<string, unknown>) => {
    const answer = await request(`${proxy.url}/revoke`, { method: "POST", headers: { authorization: await bearer(claims) }, body });
    await answer.body.dump();
    return answer.statusCode;
  };

  test("ends a session's grants, by a grant to revoke that very session", async () => {
    const speak = async () => {
      const answer = await request(`${proxy.url}/model/v1/messages`, {
        method: "POST",
        headers: { authorization: await bearer({ sub: "sesn_a" }), "anthropic-version": "2023-06-01" },
        body: JSON.stringify({ model: "m", max_tokens: 5, messages: [{ role: "user", content: "hi" }] }),
      });
      await answer.body.dump();
      return answer.statusCode;
    };
    const body = JSON.stringify({ session: "sesn_a" });
    expect(await speak()).toBe(200);
    expect(await revoke(body, { sub: "sesn_a", use: ["model"] })).toBe(403);
    expect(await revoke(body, { sub: "sesn_b", use: ["revoke"] })).toBe(400);
    expect(await revoke("{", { sub: "sesn_a", use: ["revoke"] })).toBe(400);
    expect(await speak()).toBe(200);
    expect(await revoke(body, { sub: "sesn_a", use: ["revoke"] })).toBe(200);
    expect(await speak()).toBe(401);
  });
});
