// The chat at a terminal: `node dist/test/examples/chat/main.js`. Lines go to the agent; its answers come as they are written.
//
//   y / n     answers "may it run?"         Ctrl-C   interrupts what the agent does; when it does nothing, quits
//   /new      starts a new conversation     /quit    quits

import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import Anthropic from "@anthropic-ai/sdk";
import { findAssistant } from "./assistant.ts";
import { attend } from "./attendant.ts";
import { readConfig } from "./config.ts";
import { Conversation } from "./conversation.ts";
import type { Item, Live, Status } from "./items.ts";
import { Screen } from "./screen.ts";

const LINES_MAX = 100;

const config = readConfig();
const client = new Anthropic({ apiKey: config.apiKey, baseURL: config.url });
const input = createInterface({ input: process.stdin, ...(process.stdin.isTTY && { output: process.stdout }), prompt: "> " });
const screen = new Screen(process.stdout, () => input.prompt());

/** One conversation on the screen. */
class Chat {
  readonly #conversation: Conversation;
  readonly #over = new AbortController();
  /** Calls that wait for a yes or no, oldest first. */
  readonly #asking = new Map<string, string>();
  #status: Status = "idle";
  #asked = "";
  readonly #onRest: () => void;
  /** A stream that opens after a message may miss the beginning of the answer. */
  readonly #isOpen: Promise<void>;
  #opened: () => void = () => {};

  constructor(conversation: Conversation, onRest: () => void, failed: (error: unknown) => void) {
    this.#conversation = conversation;
    this.#onRest = onRest;
    this.#isOpen = new Promise((resolve) => {
      this.#opened = resolve;
    });
    attend(conversation, this.#over.signal).catch(failed);
    this.#show().catch(failed);
  }

  get isBusy(): boolean {
    return this.#status === "running" || this.#status === "asking";
  }

  async take(line: string): Promise<void> {
    const [callId] = this.#asking.keys();
    if (callId === undefined) {
      await this.#isOpen;
      await this.#conversation.say(line, randomUUID());
      // The log says so soon; until then nobody may think that this conversation rests.
      if (this.#status !== "asking") this.#status = "running";
      return;
    }
    const isAllowed = /^y(es)?$/i.test(line);
    if (!isAllowed && !/^no?$/i.test(line)) return screen.ask("Please answer y or n first (Ctrl-C stops the turn).");
    this.#asking.delete(callId);
    await this.#conversation.confirm(callId, isAllowed);
  }

  interrupt(): Promise<void> {
    return this.#conversation.interrupt(randomUUID());
  }

  close(): void {
    this.#over.abort();
  }

  async #show(): Promise<void> {
    for await (const item of this.#conversation.follow(null, true, this.#over.signal)) {
      screen.show(item);
      this.#heed(item);
    }
  }

  #heed(item: Item | Live): void {
    if (item.type === "link" && item.isOpen) this.#opened();
    if (item.type === "call" && item.needs === "permission") this.#asking.set(item.id, item.name);
    if (item.type === "verdict" || item.type === "result") this.#asking.delete(item.callId);
    if (item.type !== "status") return;
    this.#status = item.status;
    if (item.status === "asking") this.#ask();
    if (item.status !== "idle" && item.status !== "ended") return;
    screen.prompt();
    this.#onRest();
  }

  #ask(): void {
    const [[callId, name] = []] = this.#asking;
    if (callId === undefined || name === undefined || callId === this.#asked) return;
    this.#asked = callId;
    screen.ask(`May ${name} run? y/n`);
  }
}

const lines: string[] = [];
/** Until there is a conversation, lines wait. */
let [isTaking, isLast] = [true, false];
input.on("line", (line) => {
  if (lines.length >= LINES_MAX) return screen.note("Too many lines at once: this one was left out.");
  lines.push(line.trim());
  void takeLines();
});
// No more lines: what was asked is still answered.
input.on("close", () => {
  isLast = true;
  rest();
});

const assistant = await findAssistant(client, config.model).catch(fail);
let chat = await open().catch(fail);
input.on("SIGINT", interrupt);
process.on("SIGINT", interrupt);
process.once("SIGTERM", quit);
screen.note("Chat with the agent. /new starts again, /quit quits, Ctrl-C interrupts.");
screen.prompt();
isTaking = false;
void takeLines();

async function open(): Promise<Chat> {
  return new Chat(await Conversation.start(client, assistant, randomUUID()), rest, fail);
}

async function takeLines(): Promise<void> {
  if (isTaking) return;
  isTaking = true;
  for (let line = lines.shift(); line !== undefined; line = lines.shift()) {
    try {
      await take(line);
    } catch (error) {
      screen.problem(error instanceof Error ? error.message : String(error));
      screen.prompt();
    }
  }
  isTaking = false;
  rest();
}

async function take(line: string): Promise<void> {
  if (line === "") return;
  if (line === "/quit") return quit();
  if (line !== "/new") return chat.take(line);
  chat.close();
  chat = await open();
  screen.note("A new conversation.");
  screen.prompt();
}

function interrupt(): void {
  if (!chat.isBusy) quit();
  chat.interrupt().catch((error: unknown) => screen.problem(error instanceof Error ? error.message : String(error)));
}

function rest(): void {
  if (isLast && !isTaking && lines.length === 0 && !chat.isBusy) quit();
}

function quit(): never {
  chat.close();
  screen.note("Goodbye.");
  process.exit(0);
}

function fail(error: unknown): never {
  screen.problem(error instanceof Error ? error.message : String(error));
  process.exit(1);
}
