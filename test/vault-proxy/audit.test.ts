// The audit: on the disk before it is answered, chained, bounded; and the model route that does nothing without it.

import { appendFile, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pino from "pino";
import { request } from "undici";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Audit, firstBreak, type Use } from "../../vault-proxy/audit.ts";
import { KEY, Signer, startProxy, startUpstream } from "./proxy.ts";

const log = pino({ level: "silent" });
const use = (session: string): Use => ({
  use: "model",
  session,
  fence: 1,
  credential: "model_key",
  origin: "https://m.example",
  path: "/v1/messages",
});
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-audit-"));
});
afterEach(() => rm(folder, { recursive: true }));

const textsIn = async (where: string) => Promise.all((await readdir(where)).sort().map((name) => readFile(join(where, name), "utf8")));
const linesIn = async (where: string) => (await textsIn(where)).flatMap((text) => text.split("\n").filter((line) => line !== ""));

test("each use is one line with names and a time, and the chain holds over a start and a cut line", async () => {
  const first = await Audit.open(folder, log);
  await Promise.all(["a", "b", "c"].map((session) => first.write(use(session))));
  await first.close();
  const [name = ""] = await readdir(folder);
  await appendFile(join(folder, name), '{"at":"2026-');
  const second = await Audit.open(folder, log);
  await second.write(use("d"));
  await second.close();
  const whole = (await linesIn(folder)).filter((line) => line.endsWith("}"));
  expect(whole.map((line) => JSON.parse(line).session)).toEqual(["a", "b", "c", "d"]);
  expect(JSON.parse(whole[0] ?? "")).toEqual({ at: expect.any(String), ...use("a"), before: "0".repeat(64) });
  expect(firstBreak(await textsIn(folder))).toBeNull();
  // Behind half a line nothing is written.
  const [torn = "", next = ""] = await textsIn(folder);
  expect([torn.endsWith('{"at":"2026-'), next.split("\n").length]).toEqual([true, 2]);
});

test("a start goes on with the newest file: many starts push nothing out", async () => {
  for (const session of ["a", "b", "c"]) {
    const audit = await Audit.open(folder, log);
    await audit.write(use(session));
    await audit.close();
  }
  expect(await readdir(folder)).toHaveLength(1);
  expect((await linesIn(folder)).map((line) => JSON.parse(line).session)).toEqual(["a", "b", "c"]);
  expect(firstBreak(await textsIn(folder))).toBeNull();
});

test("a line that was changed or taken out shows", async () => {
  const audit = await Audit.open(folder, log);
  for (const session of ["a", "b", "c", "d"]) await audit.write(use(session));
  await audit.close();
  const lines = await linesIn(folder);
  expect(firstBreak([lines.join("\n")])).toBeNull();
  expect(firstBreak([lines.join("\n").replace('"session":"b"', '"session":"x"')])).toBe(3);
  expect(firstBreak([lines.filter((_, at) => at !== 1).join("\n")])).toBe(2);
});

test("a full file is closed and kept, and the chain goes on in the next", async () => {
  const audit = await Audit.open(folder, log, 500);
  for (let n = 0; n < 6; n += 1) await audit.write(use(`s${n}`));
  await audit.close();
  expect((await readdir(folder)).length).toBeGreaterThan(1);
  expect(await linesIn(folder)).toHaveLength(6);
  expect(firstBreak(await textsIn(folder))).toBeNull();
});

test("a use that can't be written down does not happen", async () => {
  const signer = new Signer();
  await signer.rotate("k1");
  let asked = 0;
  const upstream = await startUpstream((_req, res) => {
    asked += 1;
    res.end("{}");
  });
  const proxy = await startProxy(signer, upstream.url);
  const speak = async () => {
    const headers = { authorization: `Bearer ${await signer.sign()}` };
    const answer = await request(`${proxy.url}/model/v1/messages`, { method: "POST", headers, body: "{}" });
    return [answer.statusCode, await answer.body.text()];
  };
  expect(await speak()).toEqual([200, "{}"]);
  const [line = ""] = await linesIn(join(proxy.parts.folder, "audit"));
  expect(JSON.parse(line)).toMatchObject({
    use: "model",
    session: "sesn_1",
    fence: 3,
    credential: "model_key",
    origin: upstream.url,
    path: "/v1/messages",
  });
  expect(line).not.toContain(KEY);
  await proxy.parts.audit.close();
  const [status, says] = await speak();
  expect([status, String(says).includes("audit"), asked]).toEqual([503, true, 1]);
  await proxy.close().catch(() => {});
  await upstream.close();
  signer.remove();
});
