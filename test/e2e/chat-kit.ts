// The product with a scripted model, and the chat example's programs that talk to it.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { vi } from "vitest";
import { type ScriptedModel, startModel } from "../support/model/server.ts";
import { type Program, startProgram } from "../support/process.ts";

/** Real programs and a browser, on a machine that has other things to do. */
export const WAIT_MS = 90_000;
vi.setConfig({ testTimeout: 240_000, hookTimeout: 240_000 });

export const API_KEY = "mh_chat-example-0123456789";
const MODEL_KEY = "sk-ant-chat-test";

export interface ChatKit {
  readonly model: ScriptedModel;
  readonly product: Program;
  /** One of the example's programs; it ends with the kit. */
  start(entry: string, env?: Readonly<Record<string, string>>): Program;
  close(): Promise<void>;
}

export async function startChatKit(): Promise<ChatKit> {
  const folder = await mkdtemp(join(tmpdir(), "manyhands-chat-"));
  const model = await startModel({ key: MODEL_KEY });
  const programs: Program[] = [];
  const run = (...args: Parameters<typeof startProgram>): Program => {
    const program = startProgram(...args);
    programs.push(program);
    return program;
  };
  const close = async () => {
    for (const program of programs.reverse()) await program[Symbol.asyncDispose]();
    await model.close();
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  };
  try {
    const keyFile = join(folder, "api.key");
    await writeFile(keyFile, `${API_KEY}\n`, { mode: 0o600 });
    const product = run("gateway/cli", {
      args: ["start"],
      env: {
        MANYHANDS_PORT: "0",
        MANYHANDS_DATA_DIR: join(folder, "data"),
        MANYHANDS_LEASE_MS: "3000",
        MANYHANDS_API_KEY: API_KEY,
        ANTHROPIC_BASE_URL: model.url,
        ANTHROPIC_API_KEY: MODEL_KEY,
      },
    });
    const { url } = await product.logged("launcher.ready", { timeoutMs: WAIT_MS });
    const settings = { CHAT_URL: String(url), CHAT_KEY_FILE: keyFile, CHAT_PORT: "0" };
    return { model, product, start: (entry, env = {}) => run(entry, { env: { ...settings, ...env } }), close };
  } catch (error) {
    await close();
    throw error;
  }
}
