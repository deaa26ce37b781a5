// What the real endpoint refuses though its shape is right: a harness that breaks its history fails here, as it would there.

import { createHash } from "node:crypto";
import { type Picture, readBase64, refusePictures } from "./images.ts";
import { blocksOf, type ContentBlock, type ModelRequest } from "./request.ts";

const CACHE_MARKERS_MAX = 4;
const REDACTED = "scripted-redacted:";

/** Signs a thinking block; changed text no longer fits its signature. */
export function sign(thinking: string): string {
  return Buffer.from(createHash("sha256").update(`signed thinking\n${thinking}`).digest()).toString("base64");
}

/** The opaque data of a redacted thinking block. */
export function redact(text: string): string {
  return Buffer.from(`${REDACTED}${text}`).toString("base64");
}

/** The reason to refuse a request; null if there is none. */
export function refuseRequest(request: ModelRequest): string | null {
  return (
    refuseTools(request) ??
    refuseThinkingSettings(request) ??
    refuseTexts(request) ??
    refuseTurns(mergedTurns(request)) ??
    refuseCacheMarkers(request) ??
    refusePictures(picturesOf(request))
  );
}

interface Turn {
  readonly role: "user" | "assistant";
  readonly index: number;
  readonly blocks: ContentBlock[];
  readonly isLast: boolean;
}

/** Neighbours of one role count as one message. */
function mergedTurns(request: ModelRequest): Turn[] {
  const turns: Turn[] = [];
  for (const [index, message] of request.messages.entries()) {
    if (message.role === "system") continue;
    const last = turns.at(-1);
    if (last?.role === message.role) last.blocks.push(...blocksOf(message));
    else turns.push({ role: message.role, index, blocks: [...blocksOf(message)], isLast: false });
  }
  return turns.map((turn, at) => ({ ...turn, isLast: at === turns.length - 1 }));
}

function refuseTurns(turns: readonly Turn[]): string | null {
  if (turns[0]?.role !== "user") return "messages: first message must use the user role";
  const used = new Set<string>();
  let open: string[] = [];
  for (const turn of turns) {
    const refusal = refuseEmptiness(turn) ?? refuseResults(turn, open) ?? refuseBlocks(turn);
    if (refusal !== null) return refusal;
    open = turn.blocks.flatMap((block) => (block.type === "tool_use" ? [block.id] : []));
    for (const id of open) {
      if (used.has(id)) return `messages.${turn.index}: \`tool_use\` ids must be unique`;
      used.add(id);
    }
  }
  return open.length === 0 ? null : unanswered(turns.at(-1)?.index ?? 0, open);
}

function refuseEmptiness({ blocks, index, role, isLast }: Turn): string | null {
  if (blocks.length === 0 && !(isLast && role === "assistant")) return `messages.${index}: all messages must have non-empty content`;
  const last = blocks.at(-1);
  const isPrefill = isLast && role === "assistant" && last?.type === "text";
  return isPrefill && /\s$/.test(last.text) ? "messages: final assistant content cannot end with trailing whitespace" : null;
}

/** Results answer the calls of the message before: each once, none besides, and before anything else. */
function refuseResults({ blocks, index, role }: Turn, open: readonly string[]): string | null {
  const answered = new Set<string>();
  let isAfterOther = false;
  for (const [at, block] of blocks.entries()) {
    if (block.type !== "tool_result") {
      isAfterOther = true;
      continue;
    }
    const path = `messages.${index}.content.${at}`;
    if (role !== "user") return `${path}: \`tool_result\` blocks can only be in \`user\` messages`;
    if (answered.has(block.tool_use_id))
      return `${path}: each tool_use must have a single result. Found multiple \`tool_result\` blocks with id: ${block.tool_use_id}`;
    if (!open.includes(block.tool_use_id)) {
      return `${path}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${block.tool_use_id}. Each \`tool_result\` block must have a corresponding \`tool_use\` block in the previous message.`;
    }
    if (isAfterOther) return `${path}: \`tool_result\` blocks must come first in the message`;
    answered.add(block.tool_use_id);
  }
  const missing = open.filter((id) => !answered.has(id));
  return missing.length === 0 ? null : unanswered(index, missing);
}

const unanswered = (index: number, ids: readonly string[]): string =>
  `messages.${index}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${ids.join(", ")}. Each \`tool_use\` block must have a corresponding \`tool_result\` block in the next message.`;

function refuseBlocks({ blocks, index, role }: Turn): string | null {
  for (const [at, block] of blocks.entries()) {
    const refusal = refuseBlock(block, role);
    if (refusal !== null) return `messages.${index}.content.${at}: ${refusal}`;
  }
  return null;
}

function refuseBlock(block: ContentBlock, role: "user" | "assistant"): string | null {
  switch (block.type) {
    case "text":
      return refuseText(block.text);
    case "tool_use":
      return role === "assistant" ? null : "`tool_use` blocks can only be in `assistant` messages";
    case "thinking":
      if (role !== "assistant") return "`thinking` blocks can only be in `assistant` messages";
      return block.signature === sign(block.thinking) ? null : "Invalid `signature` in `thinking` block";
    case "redacted_thinking":
      if (role !== "assistant") return "`redacted_thinking` blocks can only be in `assistant` messages";
      return Buffer.from(block.data, "base64").toString().startsWith(REDACTED) ? null : "Invalid `data` in `redacted_thinking` block";
    case "tool_result":
      return refuseResult(block);
    case "image":
      return role === "user" ? null : "`image` blocks can only be in `user` messages";
    case "document":
      return role === "user" ? refuseDocument(block) : "`document` blocks can only be in `user` messages";
    case "search_result":
      return role === "user" ? null : "`search_result` blocks can only be in `user` messages";
  }
}

function refuseText(text: string): string | null {
  if (text === "") return "text content blocks must be non-empty";
  return /\S/.test(text) ? null : "text content blocks must contain non-whitespace text";
}

function refuseResult(block: Extract<ContentBlock, { type: "tool_result" }>): string | null {
  const content = block.content ?? "";
  if (block.is_error === true && content.length === 0) return "content cannot be empty if `is_error` is true";
  if (typeof content === "string") return null;
  if (block.is_error === true && content.some((part) => part.type !== "text")) return "all content must be type `text` if `is_error` is true";
  for (const part of content) {
    const refusal = part.type === "text" ? refuseText(part.text) : part.type === "document" ? refuseDocument(part) : null;
    if (refusal !== null) return refusal;
  }
  return null;
}

function refuseDocument({ source }: Extract<ContentBlock, { type: "document" }>): string | null {
  if (source.type === "text") return source.data === "" ? "document text must be non-empty" : null;
  if (source.type !== "base64") return null;
  return readBase64(source.data)?.toString("latin1", 0, 5) === "%PDF-" ? null : "The PDF specified was not valid.";
}

function refuseTools({ tools = [], tool_choice: choice }: ModelRequest): string | null {
  const names = new Set<string>();
  for (const [at, tool] of tools.entries()) {
    const isOurs = tool.type === undefined || tool.type === null || tool.type === "custom";
    if (isOurs && tool.input_schema === undefined) return `tools.${at}.custom.input_schema: Field required`;
    if (["oneOf", "allOf", "anyOf"].some((word) => word in (tool.input_schema ?? {}))) {
      return `tools.${at}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level`;
    }
    if (names.has(tool.name)) return "tools: Tool names must be unique.";
    names.add(tool.name);
  }
  if (choice === undefined) return null;
  if (tools.length === 0 && choice.type !== "none") return "tool_choice: tool_choice may only be specified while providing tools";
  if (choice.type === "tool" && !names.has(choice.name ?? "")) return `tool_choice: Tool '${choice.name}' not found in provided tools`;
  return null;
}

function refuseThinkingSettings({ thinking, max_tokens: max, tool_choice: choice }: ModelRequest): string | null {
  if (thinking?.type !== "enabled") return null;
  if (thinking.budget_tokens === undefined) return "thinking.enabled.budget_tokens: Field required";
  if (max > 1 && thinking.budget_tokens >= max) return "`max_tokens` must be greater than `thinking.budget_tokens`";
  return choice?.type === "any" || choice?.type === "tool" ? "Thinking may not be enabled when tool_choice forces tool use." : null;
}

/** No half surrogate pair anywhere, and no empty text in the system prompt. */
function refuseTexts(request: ModelRequest): string | null {
  if (!isWellFormed(request)) return "The request body is not valid JSON: no low surrogate in string";
  if (!Array.isArray(request.system)) return null;
  const empty = request.system.findIndex((block) => block.text === "");
  return empty < 0 ? null : `system.${empty}: text content blocks must be non-empty`;
}

function isWellFormed(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed();
  if (Array.isArray(value)) return value.every(isWellFormed);
  if (typeof value !== "object" || value === null) return true;
  return Object.entries(value).every(([name, inner]) => name.isWellFormed() && isWellFormed(inner));
}

function refuseCacheMarkers(request: ModelRequest): string | null {
  const found: string[] = [];
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) {
      for (const inner of value) visit(inner);
      return;
    }
    if (typeof value !== "object" || value === null) return;
    for (const [name, inner] of Object.entries(value)) {
      if (name === "cache_control" && inner) found.push(typeof inner === "object" && "ttl" in inner && inner.ttl === "1h" ? "1h" : "5m");
      // What a tool's input or schema holds is data; a marker there is none.
      else if (name !== "input" && name !== "input_schema") visit(inner);
    }
  };
  visit([request.tools, request.system, request.messages]);
  if (request.cache_control) found.push(request.cache_control.ttl ?? "5m");
  if (found.length > CACHE_MARKERS_MAX) return `A maximum of ${CACHE_MARKERS_MAX} blocks with cache_control may be provided. Found ${found.length}.`;
  const firstShort = found.indexOf("5m");
  return firstShort >= 0 && found.lastIndexOf("1h") > firstShort
    ? "cache_control: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block."
    : null;
}

function picturesOf(request: ModelRequest): Picture[] {
  const found: Picture[] = [];
  const look = (block: ContentBlock, path: string): void => {
    if (block.type === "image" && block.source.type === "base64") {
      found.push({ path, mediaType: block.source.media_type, data: block.source.data });
    } else if (block.type === "tool_result" && Array.isArray(block.content)) {
      for (const [at, part] of block.content.entries()) look(part, `${path}.content.${at}`);
    }
  };
  for (const [index, message] of request.messages.entries()) {
    for (const [at, block] of blocksOf(message).entries()) look(block, `messages.${index}.content.${at}`);
  }
  return found;
}
