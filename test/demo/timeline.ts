// The demo's screen: one line an event, with the time since the question, what happened, and how long it took.

import type Anthropic from "@anthropic-ai/sdk";

export type StreamEvent = Anthropic.Beta.Sessions.BetaManagedAgentsStreamSessionEvents;

const WIDTH = 96;
const COLOURS = { dim: 2, red: 31, green: 32, yellow: 33, blue: 34, magenta: 35, cyan: 36, bold: 1 } as const;
export type Colour = keyof typeof COLOURS;

const hasColours = process.stdout.isTTY === true && !process.env.NO_COLOR;

export function paint(colour: Colour, text: string): string {
  return hasColours ? `\x1b[${COLOURS[colour]}m${text}\x1b[0m` : text;
}

export class Timeline {
  readonly #startedAt = performance.now();
  readonly #calls = new Map<string, { readonly name: string; readonly at: number }>();
  readonly #seen = new Set<string>();
  #askedAt = 0;
  #firstTextMs: number | null = null;

  /** Prints what an event says; previews only leave their time. */
  show(event: StreamEvent): void {
    if ("id" in event && typeof event.id === "string") {
      // A client's event comes twice if it had to wait, queued and processed.
      if (this.#seen.has(event.id) || ("processed_at" in event && event.processed_at === null)) return;
      this.#seen.add(event.id);
    }
    const shown = this.#describe(event, performance.now());
    if (shown === null) return;
    const ms = `+${Math.round(performance.now() - this.#startedAt)} ms`.padStart(9);
    process.stdout.write(`${paint("dim", ms)}  ${paint(shown[0], event.type.padEnd(24))} ${cut(shown[1], WIDTH)}\n`);
  }

  #describe(event: StreamEvent, now: number): readonly [Colour, string] | null {
    switch (event.type) {
      case "user.message":
        return ["cyan", wordsOf(event.content)];
      case "session.status_running":
        return ["dim", ""];
      case "span.model_request_start":
        this.#askedAt = now;
        this.#firstTextMs = null;
        return null; // Its end says how long it took.
      case "event_delta":
        this.#firstTextMs ??= Math.round(now - this.#askedAt);
        return null;
      case "agent.message":
        return ["green", wordsOf(event.content)];
      case "agent.tool_use":
        this.#calls.set(event.id, { name: event.name, at: now });
        return ["yellow", `${event.name}  ${shortInput(event.input)}`];
      case "agent.tool_result":
        return [event.is_error === true ? "red" : "blue", this.#result(event, now)];
      case "span.model_request_end": {
        const { input_tokens, output_tokens } = event.model_usage;
        const first = this.#firstTextMs === null ? "" : `, first words after ${this.#firstTextMs} ms`;
        return ["dim", `${Math.round(now - this.#askedAt)} ms${first}; ${input_tokens} tokens in, ${output_tokens} out`];
      }
      case "session.error":
        return ["red", `${event.error.type}: ${event.error.message}`];
      case "session.usage":
        return ["dim", `${event.usage.input_tokens ?? 0} tokens in, ${event.usage.output_tokens ?? 0} out in all`];
      case "session.status_idle":
        return ["magenta", event.stop_reason.type];
      default:
        return null;
    }
  }

  #result(event: Extract<StreamEvent, { type: "agent.tool_result" }>, now: number): string {
    const call = this.#calls.get(event.tool_use_id);
    const lines = wordsOf(event.content ?? [], "\n")
      .trimEnd()
      .split("\n");
    const more = lines.length > 1 ? `  (+${lines.length - 1} lines)` : "";
    const took = call === undefined ? "" : `${call.name}, ${Math.round(now - call.at)} ms`;
    return `${took}  ${cut(lines[0] ?? "", WIDTH - took.length - more.length - 2)}${more}`;
  }
}

/** What content says, with the kind of a block in the place of what can't be shown. */
export function wordsOf(content: readonly ({ readonly type: string } | { readonly type: "text"; readonly text: string })[], between = " "): string {
  return content.map((block) => ("text" in block ? block.text : `[${block.type}]`)).join(between);
}

function shortInput(input: unknown): string {
  if (typeof input !== "object" || input === null) return "";
  return Object.entries(input)
    .map(([name, value]) => (name === "content" ? `(${String(value).length} characters)` : String(value)))
    .join("  ");
}

function cut(text: string, width: number): string {
  const line = text.replaceAll(/\s+/g, " ").trim();
  return line.length > width ? `${line.slice(0, width - 1)}…` : line;
}
