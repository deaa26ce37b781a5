// The vault proxy as a program (vault-proxy/main.ts), from the built JavaScript.

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { request } from "undici";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type ScriptedModel, startModel } from "../support/model/server.ts";
import { KEY, Signer } from "./proxy.ts";

/** A program's start takes a while on a busy machine. */
const LOGGED_MS = 30_000;
vi.setConfig({ testTimeout: 3 * LOGGED_MS });

const PROGRAM = join(import.meta.dirname, "../../dist/vault-proxy/main.js");
let signer: Signer;
let model: ScriptedModel;
let child: ChildProcess | null = null;

beforeEach(async () => {
  signer = new Signer();
  await signer.rotate("k1");
  model = await startModel({ key: KEY });
});
afterEach(async () => {
  child?.kill("SIGKILL");
  child = null;
  signer.remove();
  await model.close();
});

interface Program {
  readonly child: ChildProcess;
  readonly out: string[];
  /** The first line with this message. */
  logged(msg: string): Promise<Record<string, unknown>>;
}

function start(env: Record<string, string>): Program {
  const made = spawn(process.execPath, [PROGRAM], {
    env: { PATH: process.env.PATH, MANYHANDS_KEYS_DIR: signer.folder, MANYHANDS_DATA_DIR: signer.folder, ANTHROPIC_BASE_URL: model.url, ...env },
    stdio: ["pipe", "pipe", "pipe"],
  });
  child = made;
  const out: string[] = [];
  createInterface({ input: made.stdout }).on("line", (line) => out.push(line));
  createInterface({ input: made.stderr }).on("line", (line) => out.push(line));
  const find = (msg: string): Record<string, unknown> | undefined =>
    out
      .filter((line) => line.startsWith("{"))
      .map((line) => JSON.parse(line))
      .find((line) => line.msg === msg);
  return {
    child: made,
    out,
    logged: async (msg) => {
      await expect.poll(() => find(msg), { timeout: LOGGED_MS }).toBeDefined();
      return find(msg) ?? {};
    },
  };
}

const speak = async (url: unknown) => {
  const answer = await request(`${url}/model/v1/messages`, {
    method: "POST",
    headers: { authorization: `Bearer ${await signer.sign()}`, "anthropic-version": "2023-06-01" },
    body: JSON.stringify({ model: "m", max_tokens: 5, messages: [{ role: "user", content: "say: hello" }] }),
  });
  return [answer.statusCode, await answer.body.text()] as const;
};

test("it serves with a key from its environment, never tells it, and ends in order", async () => {
  const program = start({ ANTHROPIC_API_KEY: KEY });
  const { url, role } = await program.logged("process.listening");
  expect(role).toBe("vault-proxy");
  const health = await request(`${url}/healthz`);
  expect(await health.body.json()).toEqual({ ok: true, model_key: true, grant_key: true, vaults: "file" });
  const [status, text] = await speak(url);
  expect([status, text.includes("hello")]).toEqual([200, true]);
  program.child.kill("SIGTERM");
  expect(await once(program.child, "exit")).toEqual([0, null]);
  expect(program.out.join("\n")).not.toContain(KEY);
});

test("without a key it serves all the same and its answers name the settings", async () => {
  const program = start({});
  const { url } = await program.logged("process.listening");
  await program.logged("model_key.missing");
  const [status, text] = await speak(url);
  expect([status, JSON.parse(text).error.message]).toEqual([
    401,
    "No model key is set: set MANYHANDS_MODEL_KEY_FILE or ANTHROPIC_API_KEY and start again.",
  ]);
});

test("it ends with its parent if it was told to", async () => {
  const program = start({ MANYHANDS_PARENT_PIPE: "1" });
  await program.logged("process.listening");
  program.child.stdin?.end();
  expect(await once(program.child, "exit")).toEqual([0, null]);
});

test("a bad setting stops it with one line and code 2", async () => {
  const program = start({ MANYHANDS_MODLE_KEY_FILE: "x" });
  expect(await once(program.child, "exit")).toEqual([2, null]);
  expect(program.out).toEqual(["manyhands vault-proxy: unknown setting: MANYHANDS_MODLE_KEY_FILE"]);
});

test("it waits for its port to become free", async () => {
  const holder = createServer();
  await new Promise<void>((resolve) => holder.listen(0, "127.0.0.1", resolve));
  const address = holder.address();
  const port = typeof address === "object" ? address?.port : 0;
  const program = start({ MANYHANDS_VAULT_PORT: String(port) });
  await program.logged("port.taken");
  await new Promise((resolve) => holder.close(resolve));
  expect((await program.logged("process.listening")).url).toBe(`http://127.0.0.1:${port}`);
});
