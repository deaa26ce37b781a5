// The product as a user starts it, with the scripted model behind it, under fuzz.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startModel } from "../support/model/server.ts";
import { type LogLine, ROOT, startNode } from "../support/process.ts";
import { type FuzzReport, fuzz, WRONG_KEY } from "./run.ts";

const API_KEY = "mh_canary-fuzz-api-key-0123456789";
const ERROR = 50;

export interface ProductReport extends FuzzReport {
  /** Lines that say that something broke or died, or that show a key. F3 */
  readonly badLines: readonly LogLine[];
  /** The exit code when it was asked to stop afterwards. */
  readonly code: number | null;
}

/** `dist`: another build than this one's, with a rule taken out. */
export async function fuzzProduct(options: { seed: number; requests: number; deadlineMs: number; dist?: string }): Promise<ProductReport> {
  const folder = await mkdtemp(join(tmpdir(), "manyhands-fuzz-"));
  const model = await startModel();
  const program = startNode([join(options.dist ?? join(ROOT, "dist"), "gateway", "cli.js"), "start"], {
    env: {
      MANYHANDS_PORT: "0",
      MANYHANDS_DATA_DIR: join(folder, "data"),
      MANYHANDS_API_KEY: API_KEY,
      ANTHROPIC_BASE_URL: model.url,
      ANTHROPIC_API_KEY: "the-scripted-model-takes-any-key",
    },
  });
  try {
    const { url } = await program.logged("launcher.ready");
    const report = await fuzz({ url: String(url), apiKey: API_KEY, ...options });
    program.kill("SIGTERM");
    const { code } = await program.exit();
    return { ...report, badLines: program.lines.filter(isBad), code };
  } finally {
    await program[Symbol.asyncDispose]();
    await model.close();
    await rm(folder, { recursive: true, force: true });
  }
}

function isBad(line: LogLine): boolean {
  const text = JSON.stringify(line);
  if (text.includes(API_KEY) || text.includes(WRONG_KEY)) return true;
  return Number(line.level) >= ERROR || ["request.broke", "stream.broke", "process.failed", "child.died", "child.killed"].includes(String(line.msg));
}
