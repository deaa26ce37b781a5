// The demo's offline model, driven by the official SDK, with a real (virtual) shell behind its tools.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { Bash } from "just-bash";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { ScriptedModel } from "../support/model/server.ts";
import { expectedTotals } from "./expected.ts";
import { REPORT_FILE, startOfflineModel } from "./offline-model.ts";

const DATA = readFileSync(join(import.meta.dirname, "sales.csv"), "utf8");
/** The model takes its time, and a shell starts slowly on a busy machine. */
vi.setConfig({ testTimeout: 60_000 });

const STEPS_MAX = 10;

let model: ScriptedModel;
beforeEach(async () => {
  model = await startOfflineModel();
});
afterEach(() => model.close());

interface Result {
  readonly content: string;
  readonly is_error?: boolean;
}
type Tools = (name: string, input: Record<string, string>) => Promise<Result>;

/** Asks for the report and plays the tools until the model is done. */
async function run(tools: Tools): Promise<{ last: string; called: string[] }> {
  const client = new Anthropic({ apiKey: "any", baseURL: model.url, maxRetries: 0 });
  const called: string[] = [];
  const messages: Anthropic.MessageParam[] = [
    {
      role: "user",
      content: [
        { type: "document", source: { type: "text", media_type: "text/plain", data: DATA }, title: "sales.csv" },
        { type: "text", text: "What stands out?" },
      ],
    },
  ];
  for (let step = 0; step < STEPS_MAX; step++) {
    const reply = await client.messages.create({ model: "m", max_tokens: 4_000, messages });
    if (reply.stop_reason === "end_turn") return { last: reply.content.map((block) => (block.type === "text" ? block.text : "")).join(""), called };
    const results: Anthropic.ToolResultBlockParam[] = [];
    for (const block of reply.content) {
      if (block.type !== "tool_use") continue;
      called.push(block.name);
      const input = block.input as Record<string, string>;
      results.push({ type: "tool_result", tool_use_id: block.id, ...(await tools(block.name, input)) });
    }
    messages.push({ role: "assistant", content: reply.content }, { role: "user", content: results });
  }
  throw new Error("The offline model never ends.");
}

function realTools(shell: Bash): Tools {
  return async (name, input) => {
    if (name === "write") await shell.writeFile(input.file_path ?? "", input.content ?? "");
    if (name === "write") return { content: "written" };
    if (name === "read") return { content: await shell.readFile(input.file_path ?? "") };
    const { stdout, stderr, exitCode } = await shell.exec(input.command ?? "");
    return { content: stdout + stderr, is_error: exitCode !== 0 };
  };
}

describe("the offline model", () => {
  test("does the task: its report's numbers are the true ones, by way of the tools", async () => {
    const shell = new Bash({ cwd: "/workspace" });
    const { last, called } = await run(realTools(shell));
    expect(called).toEqual(["write", "bash", "bash", "bash", "write", "read"]);
    const report = await shell.readFile(REPORT_FILE);
    for (const sum of expectedTotals(DATA)) expect(report).toContain(`| ${sum.name} | ${sum.amount.toFixed(2)} |`);
    expect(last).toContain(REPORT_FILE);
    expect(model.stats().rejected).toBe(0);
  });

  test("says what broke when a tool fails, prints nonsense or forgets", async () => {
    const good = realTools(new Bash({ cwd: "/workspace" }));
    const breaking =
      (broken: string, result: Result): Tools =>
      (name, input) =>
        name === broken ? Promise.resolve(result) : good(name, input);
    expect((await run(breaking("bash", { content: "awk: not found", is_error: true }))).last).toContain(
      "bash failed, so I stop here: awk: not found",
    );
    expect((await run(breaking("bash", { content: "nonsense" }))).last).toContain("can't make sense of what the commands printed: nonsense");
    expect((await run(breaking("read", { content: "something else" }))).last).toContain("not what I wrote");
  });
});
