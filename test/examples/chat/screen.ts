// The terminal's screen: items as lines, and an answer as it is written.

import type { Item, Live } from "./items.ts";

const RESULT_LINES_MAX = 12;
const COLOURS = { dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 } as const;

export class Screen {
  readonly #out: NodeJS.WriteStream;
  readonly #onPrompt: () => void;
  readonly #hasColours: boolean;
  readonly #shown = new Set<string>();
  /** The message that is being written, and what of it is on the screen. */
  #open: { readonly id: string; text: string } | null = null;
  #isOpenLink = true;

  constructor(out: NodeJS.WriteStream, onPrompt: () => void) {
    this.#out = out;
    this.#onPrompt = onPrompt;
    this.#hasColours = out.isTTY === true && !process.env.NO_COLOR;
  }

  show(item: Item | Live): void {
    switch (item.type) {
      case "delta":
        this.#write(item.id, item.text);
        break;
      case "dropped":
        this.#drop("(not finished)");
        break;
      case "link":
        if (!item.isOpen && this.#isOpenLink) this.#drop("(the connection was lost; waiting for it …)");
        this.#isOpenLink = item.isOpen;
        break;
      case "agent":
        this.#finish(item.id, item.text);
        break;
      case "call":
        this.#line("yellow", `⚙ ${item.name} ${shortInput(item.input)}`);
        break;
      case "result":
        this.#line(item.isError ? "red" : "dim", firstLines(item.text));
        break;
      case "verdict":
        this.#line("dim", item.isAllowed ? "allowed" : "denied");
        break;
      case "interrupt":
        this.#line("yellow", "interrupted");
        break;
      case "problem":
        this.problem(item.text);
        break;
      case "user":
        // It is on the screen, as it was typed here. Only that it has to wait is news.
        if (item.isWaiting && !this.#shown.has(item.id)) this.#line("dim", "(the agent is busy; it will read this next)");
        this.#shown.add(item.id);
    }
  }

  note(text: string): void {
    this.#line("dim", text);
  }

  ask(text: string): void {
    this.#line("cyan", text);
    this.prompt();
  }

  problem(text: string): void {
    this.#line("red", text);
  }

  prompt(): void {
    this.#break();
    this.#onPrompt();
  }

  #write(id: string, text: string): void {
    if (this.#open?.id !== id) {
      this.#break();
      this.#open = { id, text: "" };
    }
    this.#open.text += text;
    this.#out.write(this.#paint("green", clean(text)));
  }

  /** What was written before is the beginning of the whole. */
  #finish(id: string, text: string): void {
    const written = this.#open?.id === id ? this.#open.text : null;
    if (written !== null && text.startsWith(written)) this.#out.write(`${this.#paint("green", clean(text.slice(written.length)))}\n`);
    else this.#line("green", text);
    this.#open = null;
  }

  #drop(why: string): void {
    if (this.#open !== null || why.startsWith("(the")) this.#line("dim", why);
  }

  #line(colour: keyof typeof COLOURS, text: string): void {
    this.#break();
    this.#out.write(`${this.#paint(colour, clean(text))}\n`);
  }

  #break(): void {
    if (this.#open !== null) this.#out.write("\n");
    this.#open = null;
  }

  #paint(colour: keyof typeof COLOURS, text: string): string {
    return this.#hasColours ? `\x1b[${COLOURS[colour]}m${text}\x1b[0m` : text;
  }
}

/** A terminal obeys what it is sent: of control characters only line breaks and tabs come from outside. */
function clean(text: string): string {
  return text.replaceAll(/[^\P{Cc}\n\t]/gu, "");
}

function shortInput(input: unknown): string {
  if (typeof input !== "object" || input === null) return "";
  return Object.entries(input)
    .map(([name, value]) => (name === "content" ? `(${String(value).length} characters)` : String(value)))
    .join("  ");
}

function firstLines(text: string): string {
  const lines = text.trimEnd().split("\n");
  const more = lines.length > RESULT_LINES_MAX ? [`… (${lines.length - RESULT_LINES_MAX} lines more)`] : [];
  return [...lines.slice(0, RESULT_LINES_MAX), ...more].map((line) => `  ${line}`).join("\n");
}
