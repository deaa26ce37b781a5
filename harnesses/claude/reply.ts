// Builds a reply from the events of its stream, block for block, as it must go back to the model.

import type Anthropic from "@anthropic-ai/sdk";
import type { PreviewPiece, Reply } from "../harness.ts";
import type { Refused } from "./client.ts";

type Block =
  | { readonly type: "text"; text: string }
  | { readonly type: "thinking"; thinking: string; signature: string }
  | { readonly type: "redacted_thinking"; readonly data: string }
  | { readonly type: "tool_use"; readonly id: string; readonly name: string; json: string };

/** Stop reasons that may fall into the middle of a call. */
const CUT_OFF: ReadonlySet<string> = new Set(["max_tokens", "model_context_window_exceeded"]);

export class ReplyBuilder {
  readonly #hear: (piece: PreviewPiece) => void;
  readonly #blocks = new Map<number, Block>();
  #model = "";
  #stopReason: string | null = null;
  #refusal: Refused = { category: null, explanation: null };
  #usage = { input_tokens: 0, output_tokens: 0, cache_read_input_tokens: 0, cache_creation_input_tokens: 0, cache_creation_1h_input_tokens: 0 };
  #isComplete = false;

  constructor(hear: (piece: PreviewPiece) => void) {
    this.#hear = hear;
  }

  get isComplete(): boolean {
    return this.#isComplete;
  }
  get refusal(): Refused {
    return this.#refusal;
  }

  add(event: Anthropic.MessageStreamEvent): void {
    switch (event.type) {
      case "message_start":
        this.#model = event.message.model;
        this.#count(event.message.usage);
        this.#usage.cache_creation_1h_input_tokens = event.message.usage.cache_creation?.ephemeral_1h_input_tokens ?? 0;
        break;
      case "content_block_start":
        this.#start(event.index, event.content_block);
        break;
      case "content_block_delta":
        this.#extend(event.index, event.delta);
        break;
      case "message_delta":
        this.#stopReason = event.delta.stop_reason;
        if (event.delta.stop_details)
          this.#refusal = { category: event.delta.stop_details.category, explanation: event.delta.stop_details.explanation };
        this.#count(event.usage);
        break;
      case "message_stop":
        this.#isComplete = true;
        break;
      default:
        break;
    }
  }

  reply(): Reply {
    const blocks = [...this.#blocks].sort(([one], [other]) => one - other).map(([, block]) => block);
    const last = blocks.at(-1);
    return {
      model: this.#model,
      stop_reason: this.#stopReason,
      content: blocks.map((block) => {
        if (block.type !== "tool_use") return block;
        return { type: "tool_use", id: block.id, name: block.name, input_json: block.json === "" ? "{}" : block.json };
      }),
      // At the token limit the last call may be half of what was meant, even if it parses.
      truncated: CUT_OFF.has(this.#stopReason ?? "") && last?.type === "tool_use" ? [last.id] : [],
      usage: this.#usage,
    };
  }

  #start(index: number, block: Anthropic.ContentBlock): void {
    switch (block.type) {
      case "text":
        this.#blocks.set(index, { type: "text", text: block.text });
        this.#hear({ type: "text", index, text: block.text });
        break;
      case "thinking":
        this.#blocks.set(index, { type: "thinking", thinking: block.thinking, signature: block.signature });
        this.#hear({ type: "thinking", index });
        break;
      case "redacted_thinking":
        this.#blocks.set(index, { type: "redacted_thinking", data: block.data });
        this.#hear({ type: "thinking", index });
        break;
      case "tool_use":
        this.#blocks.set(index, { type: "tool_use", id: block.id, name: block.name, json: "" });
        break;
      default:
        // Blocks of server tools: none is offered.
        break;
    }
  }

  #extend(index: number, delta: Anthropic.RawContentBlockDelta): void {
    const block = this.#blocks.get(index);
    if (delta.type === "text_delta" && block?.type === "text") {
      block.text += delta.text;
      this.#hear({ type: "text", index, text: delta.text });
    }
    if (delta.type === "thinking_delta" && block?.type === "thinking") block.thinking += delta.thinking;
    if (delta.type === "signature_delta" && block?.type === "thinking") block.signature += delta.signature;
    if (delta.type === "input_json_delta" && block?.type === "tool_use") block.json += delta.partial_json;
  }

  // The counts are cumulative: the last one that was given stands.
  #count(used: {
    readonly input_tokens: number | null;
    readonly output_tokens: number;
    readonly cache_read_input_tokens: number | null;
    readonly cache_creation_input_tokens: number | null;
  }): void {
    this.#usage = {
      input_tokens: used.input_tokens ?? this.#usage.input_tokens,
      output_tokens: used.output_tokens,
      cache_read_input_tokens: used.cache_read_input_tokens ?? this.#usage.cache_read_input_tokens,
      cache_creation_input_tokens: used.cache_creation_input_tokens ?? this.#usage.cache_creation_input_tokens,
      cache_creation_1h_input_tokens: this.#usage.cache_creation_1h_input_tokens,
    };
  }
}
