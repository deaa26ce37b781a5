// A session's log as the messages of the Messages API.
//
//   C1  A reply goes back block for block as it came: order, signatures, redacted data, tool input from its original JSON text. A thinking block
//       without a signature can never validate and is left out; so are empty texts and those of white space, which the API refuses.
//   C2  The message after a reply starts with exactly one result for each of its calls, in call order; what was said follows.
//   C3  What was said stands where it was applied, an outcome where it was taken up, a verdict where it was given. Nothing that waits is shown.

import type Anthropic from "@anthropic-ai/sdk";
import type { HarnessSession } from "../harness.ts";
import { MediaBudget } from "./images.ts";

type Entry = ReturnType<HarnessSession["getEvents"]>[number];
type Received = Extract<Entry, { type: "log.received" }>["event"];
type Verdict = Extract<Entry, { type: "span.outcome_evaluation_end" }>;
type Reply = Extract<Entry, { type: "log.reply" }>;
type ResultContent = Extract<Entry, { type: "agent.tool_result" }>["content"];
type MessageContent = Extract<Received, { type: "user.message" }>["content"];
type Block = Anthropic.ContentBlockParam;

/** What a call is answered with where its log holds no result: the API refuses a call without one. */
const NO_RESULT = "No result of this call was recorded. It may or may not have run.";

/** What stands for a message of white space, which the API refuses. */
const NOTHING_SAID = "(an empty message)";

interface Result {
  readonly content: ResultContent;
  readonly is_error: boolean;
}

export function transcriptOf(entries: readonly Entry[]): Anthropic.MessageParam[] {
  const said = new Map<string, Received>();
  const results = new Map<string, Result>();
  const media = new MediaBudget(entries);
  const messages: { role: "user" | "assistant"; content: Block[] }[] = [];
  const add = (role: "user" | "assistant", blocks: readonly Block[]) => {
    if (blocks.length === 0) return;
    const last = messages.at(-1);
    if (last?.role === role) last.content.push(...blocks);
    else messages.push({ role, content: [...blocks] });
  };

  let reply: Reply | null = null;
  let words: Block[] = [];
  const flush = () => {
    add("user", [...resultBlocks(reply, results, media), ...words]);
    words = [];
  };

  for (const entry of entries) {
    switch (entry.type) {
      case "log.received":
        said.set(entry.event.id, entry.event);
        if (entry.event.type === "user.custom_tool_result") results.set(entry.event.custom_tool_use_id, resultOf(entry.event));
        if (entry.event.type === "user.tool_result") results.set(entry.event.tool_use_id, resultOf(entry.event));
        break;
      case "log.applied":
        words.push(...wordsOf(said.get(entry.id), media));
        break;
      case "log.outcome":
        words.push(...wordsOf(said.get(entry.id), media));
        break;
      case "span.outcome_evaluation_end":
        words.push(verdictOf(entry));
        break;
      case "agent.tool_result":
        results.set(entry.tool_use_id, entry);
        break;
      case "agent.mcp_tool_result":
        results.set(entry.mcp_tool_use_id, entry);
        break;
      case "user.custom_tool_result":
        results.set(entry.custom_tool_use_id, entry);
        break;
      case "log.reply":
        flush();
        add("assistant", replyBlocks(entry));
        reply = entry;
        break;
    }
  }
  flush();
  return messages;
}

function replyBlocks(reply: Reply): Block[] {
  return reply.content.flatMap((block): Block[] => {
    switch (block.type) {
      case "text":
        return block.text.trim() === "" ? [] : [{ type: "text", text: block.text }];
      case "thinking":
        return block.signature === "" ? [] : [{ type: "thinking", thinking: block.thinking, signature: block.signature }];
      case "redacted_thinking":
        return [{ type: "redacted_thinking", data: block.data }];
      default:
        return [{ type: "tool_use", id: block.id, name: block.name, input: inputOf(block.input_json) }];
    }
  });
}

/** The original input, its strings and names well-formed; an empty object where the text is no JSON object, which the API would refuse. */
function inputOf(json: string): Record<string, unknown> {
  try {
    const input: unknown = JSON.parse(json, wholeOf);
    if (input !== null && typeof input === "object" && !Array.isArray(input)) return { ...input };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  return {};
}

/** For JSON.parse: escapes can spell halves of characters, in names as well. */
function wholeOf(_name: string, value: unknown): unknown {
  if (typeof value === "string") return value.toWellFormed();
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  const isWhole = Object.keys(value).every((name) => name.isWellFormed());
  return isWhole ? value : Object.fromEntries(Object.entries(value).map(([name, inner]) => [name.toWellFormed(), inner]));
}

function resultBlocks(reply: Reply | null, results: ReadonlyMap<string, Result>, media: MediaBudget): Block[] {
  return (reply?.calls ?? []).map(({ tool_use_id, event_id }): Anthropic.ToolResultBlockParam => {
    const result = results.get(event_id);
    if (!result) return { type: "tool_result", tool_use_id, content: [{ type: "text", text: NO_RESULT }], is_error: true };
    const content = result.content.flatMap((block) => blockOf(block, media));
    return {
      type: "tool_result",
      tool_use_id,
      ...(result.is_error ? { content: content.length > 0 ? content.map(inError) : [NO_WORDS], is_error: true } : { content }),
    };
  });
}

const NO_WORDS: Anthropic.TextBlockParam = { type: "text", text: "The tool failed and said nothing." };

/** The API takes an error in words only. */
function inError(block: Told): Anthropic.TextBlockParam {
  if (block.type === "text") return block;
  if (block.type === "search_result") return { type: "text", text: [block.title, ...block.content.map(({ text }) => text)].join("\n") };
  return { type: "text", text: `[The error came with ${block.type === "image" ? "a picture" : "a document"}, which can't be shown with an error.]` };
}

function resultOf(event: Extract<Received, { type: "user.custom_tool_result" | "user.tool_result" }>): Result {
  return { content: event.content ?? [], is_error: event.is_error ?? false };
}

function wordsOf(event: Received | undefined, media: MediaBudget): Block[] {
  if (event?.type === "user.message") {
    const blocks = event.content.flatMap((block) => blockOf(block, media));
    return blocks.length > 0 ? blocks : [{ type: "text", text: NOTHING_SAID }];
  }
  if (event?.type === "user.define_outcome") return [outcomeOf(event)];
  if (event?.type !== "system.message") return [];
  // A text of the user's turn is what every model takes; the tag tells whose word it is.
  const text = event.content.map((block) => block.text).join("\n");
  return [{ type: "text", text: `<system>\n${text.toWellFormed()}\n</system>` }];
}

function outcomeOf({ description, rubric }: Extract<Received, { type: "user.define_outcome" }>): Block {
  const how =
    "Work toward this outcome. When you stop, a grader who sees this session judges your work by the rubric, and you are told what is missing.";
  const text = `<outcome>\n${how}\n<description>\n${description}\n</description>\n<rubric>\n${rubric.content}\n</rubric>\n</outcome>`;
  return { type: "text", text: text.toWellFormed() };
}

const VERDICTS: Readonly<Record<Verdict["result"], string>> = {
  satisfied: "The grader judged the outcome as reached.",
  needs_revision: "The grader judged that the outcome is not reached yet. Revise your work accordingly:",
  max_iterations_reached:
    "The grader judged that the outcome is not reached, and there will be no further evaluation. Say in a few words what is done and what is missing:",
  failed: "The outcome has ended without a verdict on the work:",
  interrupted: "The outcome has ended:",
};

function verdictOf({ result, explanation }: Verdict): Block {
  return { type: "text", text: `<evaluation>\n${VERDICTS[result]}\n${explanation.toWellFormed()}\n</evaluation>` };
}

type Given = (MessageContent | ResultContent)[number];
type Told = Anthropic.TextBlockParam | Anthropic.ImageBlockParam | Anthropic.DocumentBlockParam | Anthropic.SearchResultBlockParam;

function blockOf(block: Given, media: MediaBudget): Told[] {
  switch (block.type) {
    case "text": {
      const text = block.text.toWellFormed();
      return text.trim() === "" ? [] : [{ type: "text", text }];
    }
    case "image":
      return [media.blockOf(block)];
    case "document":
      return [media.isTooOld(block) ? { type: "text", text: "[A document was left out: only the newest are kept.]" } : documentOf(block)];
    case "search_result":
      return [
        {
          type: "search_result",
          source: block.source.toWellFormed(),
          title: block.title.toWellFormed(),
          content: block.content.map(({ text }) => ({ type: "text", text: text.toWellFormed() })),
          ...(block.citations ? { citations: { enabled: block.citations.enabled } } : {}),
        },
      ];
  }
}

function documentOf(block: Extract<Given, { type: "document" }>): Anthropic.DocumentBlockParam | Anthropic.TextBlockParam {
  const source = documentSource(block.source);
  if (!source) return { type: "text", text: "[A document was left out: it can't be shown to the model.]" };
  return {
    type: "document",
    source,
    ...(block.title ? { title: block.title.toWellFormed() } : {}),
    ...(block.context ? { context: block.context.toWellFormed() } : {}),
  };
}

/** By its first bytes: a document that is none would have every later request refused. */
function isPdf(source: { readonly media_type: string; readonly data: string }): boolean {
  const isBase64 = source.data.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(source.data);
  return source.media_type === "application/pdf" && isBase64 && Buffer.from(source.data.slice(0, 1_400), "base64").includes("%PDF-");
}

function documentSource(source: Extract<Given, { type: "document" }>["source"]): Anthropic.DocumentBlockParam["source"] | null {
  switch (source.type) {
    case "base64":
      return isPdf(source) ? { type: "base64", media_type: "application/pdf", data: source.data } : null;
    case "text":
      return { type: "text", media_type: "text/plain", data: source.data.toWellFormed() };
    case "url":
      return { type: "url", url: source.url };
    case "file":
      return null;
  }
}
