// A reply as server-sent events, at the step's pace, broken where the step says so.

import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { Reply, ReplyBlock } from "./reply.ts";
import type { Fault, Step } from "./script.ts";

const TEXT_CHUNK_CHARS = 12;
const LONG_CHARS = 4_096;
const LONG_CHUNK_CHARS = 512;
const STALL_MS = 60_000;
/** What was written before a cut should reach the client. */
const DROP_GRACE_MS = 20;

/** The reply as one JSON object, without its content where it is about to be streamed. */
export function envelope(reply: Reply, content: readonly ReplyBlock[]): Record<string, unknown> {
  const isRefusal = reply.stopReason === "refusal";
  return {
    id: reply.id,
    type: "message",
    role: "assistant",
    model: reply.model,
    content,
    stop_reason: reply.stopReason,
    stop_sequence: null,
    stop_details: isRefusal ? { type: "refusal", category: null, explanation: "The script refuses." } : null,
    usage: {
      ...reply.usage,
      cache_creation: { ephemeral_5m_input_tokens: reply.usage.cache_creation_input_tokens, ephemeral_1h_input_tokens: 0 },
      server_tool_use: null,
      service_tier: "standard",
    },
  };
}

/** Streams the reply. Rejects when the client leaves: `signal` says so. */
export async function streamReply(res: ServerResponse, reply: Reply, pace: { step: Step; fault: Fault | null; signal: AbortSignal }): Promise<void> {
  const events = new EventWriter(res, pace.step, pace.fault, pace.signal);
  const start = envelope(reply, []);
  await events.write("message_start", {
    message: { ...start, stop_reason: null, stop_details: null, usage: { ...reply.usage, output_tokens: 1 } },
  });
  await events.write("ping", {});
  if (pace.fault?.after === 0 && (await events.breaks())) return;
  for (const [index, block] of reply.content.entries()) {
    if (await streamBlock(events, index, block, reply.cutInputs.get(index))) return;
  }
  if (await events.breaks(true)) return;
  const delta = { stop_reason: reply.stopReason, stop_sequence: null, stop_details: start.stop_details };
  await events.write("message_delta", { delta, usage: reply.usage });
  await events.write("message_stop", {});
  res.end();
}

/** True: the stream was broken on purpose. */
async function streamBlock(events: EventWriter, index: number, block: ReplyBlock, cutInput: string | undefined): Promise<boolean> {
  switch (block.type) {
    case "text":
      await events.write("content_block_start", { index, content_block: { type: "text", text: "" } });
      if (await events.deltas(index, block.text, (text) => ({ type: "text_delta", text }))) return true;
      break;
    case "thinking":
      await events.write("content_block_start", { index, content_block: { type: "thinking", thinking: "", signature: "" } });
      if (await events.deltas(index, block.thinking, (thinking) => ({ type: "thinking_delta", thinking }))) return true;
      await events.write("content_block_delta", { index, delta: { type: "signature_delta", signature: block.signature } });
      break;
    case "redacted_thinking":
      await events.write("content_block_start", { index, content_block: block });
      break;
    case "tool_use": {
      await events.write("content_block_start", { index, content_block: { ...block, input: {} } });
      const json = cutInput ?? JSON.stringify(block.input);
      if (await events.deltas(index, json, (partial_json) => ({ type: "input_json_delta", partial_json }))) return true;
    }
  }
  await events.write("content_block_stop", { index });
  return false;
}

class EventWriter {
  readonly #res: ServerResponse;
  readonly #step: Step;
  readonly #fault: Fault | null;
  readonly #signal: AbortSignal;
  #chars = 0;
  #isOver = false;

  constructor(res: ServerResponse, step: Step, fault: Fault | null, signal: AbortSignal) {
    this.#res = res;
    this.#step = step;
    this.#fault = fault;
    this.#signal = signal;
  }

  async write(type: string, fields: Record<string, unknown>): Promise<void> {
    await this.#raw(`event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`);
  }

  /** Streams a text in pieces that never cut a code point. True: broken on purpose. */
  async deltas(index: number, text: string, delta: (piece: string) => unknown): Promise<boolean> {
    const size = this.#step.chunkChars || (text.length > LONG_CHARS ? LONG_CHUNK_CHARS : TEXT_CHUNK_CHARS);
    const points = Array.from(text);
    for (let at = 0; at < points.length; at += size) {
      const piece = points.slice(at, at + size).join("");
      await this.write("content_block_delta", { index, delta: delta(piece) });
      this.#chars += piece.length;
      if (this.#step.tokenDelayMs) await sleep(this.#step.tokenDelayMs, undefined, { signal: this.#signal });
      if (await this.breaks()) return true;
    }
    return false;
  }

  /** Breaks the stream if its fault is due (at the end it always is). True: it ends here. */
  async breaks(isEnd = false): Promise<boolean> {
    const fault = this.#fault;
    if (fault === null || this.#isOver || (!isEnd && this.#chars < fault.after)) return false;
    this.#isOver = true;
    switch (fault.type) {
      case "stall":
        await sleep(Number(fault.value) || STALL_MS, undefined, { signal: this.#signal });
        return false;
      case "sse_error": {
        const type = fault.value === "" ? "overloaded_error" : fault.value;
        await this.write("error", { error: { type, message: fault.message ?? "The script breaks the stream." } });
        this.#res.end();
        return true;
      }
      case "malformed":
        await this.#raw('event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"del\n\n');
        this.#res.end();
        return true;
      case "drop":
        await sleep(DROP_GRACE_MS, undefined, { signal: this.#signal });
        this.#res.destroy();
        return true;
      case "error":
        return false; // Answered before there was a stream.
    }
  }

  async #raw(text: string): Promise<void> {
    this.#signal.throwIfAborted();
    if (!this.#res.write(text)) await once(this.#res, "drain", { signal: this.#signal });
  }
}
