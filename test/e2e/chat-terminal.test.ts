// The chat example at a terminal, by pipes: the product with a scripted model, and the example's program.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Program } from "../support/process.ts";
import { until } from "../support/until.ts";
import { type ChatKit, startChatKit, WAIT_MS } from "./chat-kit.ts";

let kit: ChatKit;
beforeAll(async () => {
  kit = await startChatKit();
});
afterAll(() => kit.close());

describe("the chat at a terminal", () => {
  const chat = () => kit.start("test/examples/chat/main");
  const says = (program: Program, text: string) =>
    until(() => program.stdout.includes(text), { timeoutMs: WAIT_MS, what: () => `${text} in:\n${program.stdout}\n${program.stderr}` });

  test("shows answers, calls and results, and asks before a command runs", async () => {
    const program = chat();
    program.type("say: Hello.");
    await says(program, "Hello.");
    program.type('call bash: {"command": "echo from the sandbox"}');
    await says(program, "May bash run? y/n");
    program.type("what?");
    await says(program, "Please answer y or n first");
    program.type("y");
    await says(program, "  from the sandbox");
    program.type("/quit");
    expect((await program.exit()).code).toBe(0);
    expect(program.stdout.match(/Hello\./g)?.length).toBe(1);
  });

  test("answers its own tool, and answers what was asked before its input ended", async () => {
    const program = chat();
    program.type('call current_time: {"timezone": "Asia/Tokyo"}');
    await says(program, "current_time Asia/Tokyo");
    program.closePipe();
    expect((await program.exit(WAIT_MS)).code).toBe(0);
    expect(program.stdout).toMatch(/ {2}\w+, \d+ \w+ 20\d\d at .*GMT\+9 \(20/);
  });

  test("Ctrl-C interrupts the turn, and quits when there is none", async () => {
    const program = chat();
    const asked = kit.model.stats().total;
    program.type("say: Working on it.\\n");
    await says(program, "Working on it.");
    program.type("wait: 60000");
    await until(() => kit.model.stats().total >= asked + 2, { timeoutMs: WAIT_MS, what: "a model that works" });
    program.kill("SIGINT");
    await says(program, "interrupted");
    program.kill("SIGINT");
    expect((await program.exit()).code).toBe(0);
  });
});
