// The shape of a Messages API request, as strict as the real endpoint is about fields that it doesn't know.

import { z } from "zod";

const CacheControl = z.strictObject({ type: z.literal("ephemeral"), ttl: z.enum(["5m", "1h"]).optional() }).nullish();
const citations = z.unknown().optional();

const TextBlock = z.strictObject({ type: z.literal("text"), text: z.string(), cache_control: CacheControl, citations });
const ImageBlock = z.strictObject({
  type: z.literal("image"),
  source: z.discriminatedUnion("type", [
    z.strictObject({ type: z.literal("base64"), media_type: z.enum(["image/jpeg", "image/png", "image/gif", "image/webp"]), data: z.string() }),
    z.strictObject({ type: z.literal("url"), url: z.url() }),
    z.strictObject({ type: z.literal("file"), file_id: z.string() }),
  ]),
  cache_control: CacheControl,
});
const DocumentBlock = z.strictObject({
  type: z.literal("document"),
  source: z.discriminatedUnion("type", [
    z.strictObject({ type: z.literal("base64"), media_type: z.literal("application/pdf"), data: z.string() }),
    z.strictObject({ type: z.literal("text"), media_type: z.literal("text/plain"), data: z.string() }),
    z.strictObject({ type: z.literal("content"), content: z.union([z.string(), z.array(z.union([TextBlock, ImageBlock]))]) }),
    z.strictObject({ type: z.literal("url"), url: z.url() }),
    z.strictObject({ type: z.literal("file"), file_id: z.string() }),
  ]),
  title: z.string().nullish(),
  context: z.string().nullish(),
  cache_control: CacheControl,
  citations,
});
const SearchResultBlock = z.strictObject({
  type: z.literal("search_result"),
  source: z.string(),
  title: z.string(),
  content: z.array(TextBlock).min(1),
  cache_control: CacheControl,
  citations,
});
const ToolUseBlock = z.strictObject({
  type: z.literal("tool_use"),
  id: z.string().regex(/^[a-zA-Z0-9_-]+$/),
  name: z.string().min(1).max(200),
  input: z.record(z.string(), z.unknown()),
  cache_control: CacheControl,
  caller: z.unknown().optional(),
  toolset_name: z.string().nullish(),
});
const ToolResultBlock = z.strictObject({
  type: z.literal("tool_result"),
  tool_use_id: z.string().regex(/^[a-zA-Z0-9_-]+$/),
  content: z.union([z.string(), z.array(z.discriminatedUnion("type", [TextBlock, ImageBlock, DocumentBlock, SearchResultBlock]))]).optional(),
  is_error: z.boolean().optional(),
  toolset_name: z.string().nullish(),
  cache_control: CacheControl,
});
const ThinkingBlock = z.strictObject({ type: z.literal("thinking"), thinking: z.string(), signature: z.string() });
const RedactedThinkingBlock = z.strictObject({ type: z.literal("redacted_thinking"), data: z.string() });

const Block = z.discriminatedUnion("type", [
  TextBlock,
  ImageBlock,
  DocumentBlock,
  SearchResultBlock,
  ToolUseBlock,
  ToolResultBlock,
  ThinkingBlock,
  RedactedThinkingBlock,
]);
const Message = z.strictObject({ role: z.enum(["user", "assistant", "system"]), content: z.union([z.string(), z.array(Block)]) });
const Tool = z.looseObject({
  type: z.string().nullish(),
  name: z.string().regex(/^[a-zA-Z0-9_-]{1,128}$/, "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"),
  description: z.string().optional(),
  input_schema: z.looseObject({ type: z.literal("object") }).optional(),
  cache_control: CacheControl,
});
const ToolChoice = z.looseObject({ type: z.enum(["auto", "any", "tool", "none"]), name: z.string().optional() });

const unread = z.unknown().optional();
const Counted = z.strictObject({
  model: z.string().min(1),
  messages: z.array(Message).min(1, "at least one message is required"),
  system: z.union([z.string(), z.array(TextBlock)]).optional(),
  tools: z.array(Tool).optional(),
  tool_choice: ToolChoice.optional(),
  thinking: z.looseObject({ type: z.enum(["enabled", "disabled", "adaptive"]), budget_tokens: z.number().int().min(1024).optional() }).optional(),
  output_config: z.looseObject({ format: z.looseObject({ schema: unread }).nullish() }).optional(),
  cache_control: CacheControl,
  context_management: unread,
  mcp_servers: unread,
  output_format: unread,
  billing_policy: unread,
  compaction: unread,
  speed: unread,
  user_profile_id: unread,
  workspace_id: unread,
});
const Full = Counted.extend({
  max_tokens: z.number().int().min(1),
  stream: z.boolean().optional(),
  temperature: z.number().min(0).max(1).optional(),
  top_k: z.number().int().min(0).optional(),
  top_p: z.number().min(0).max(1).optional(),
  stop_sequences: z.array(z.string().regex(/\S/, "each stop sequence must contain non-whitespace")).optional(),
  metadata: z.strictObject({ user_id: z.string().max(256).nullish() }).optional(),
  service_tier: z.enum(["auto", "standard_only"]).optional(),
  container: unread,
  diagnostics: unread,
  fallback_credit_token: unread,
  fallbacks: unread,
  thread: unread,
  inference_geo: unread,
});

export type ContentBlock = z.infer<typeof Block>;
export type ModelMessage = z.infer<typeof Message>;
export type ModelTool = z.infer<typeof Tool>;
/** A request to `/v1/messages`; one to `count_tokens` has no `max_tokens` and is read as having 1. */
export type ModelRequest = z.infer<typeof Full>;

/** Reads a request's body, or says what is wrong with its shape in the endpoint's own manner. */
export function readRequest(body: unknown, isCount: boolean): ModelRequest | string {
  if (isCount) {
    const read = Counted.safeParse(body);
    return read.success ? { ...read.data, max_tokens: 1 } : tell(read.error);
  }
  const read = Full.safeParse(body);
  return read.success ? read.data : tell(read.error);
}

/** The blocks of a message; a bare string is one text. */
export function blocksOf(message: ModelMessage): ContentBlock[] {
  return typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
}

/** What a tool result, or any content, says in words. */
export function wordsOf(content: string | readonly ContentBlock[] | undefined): string {
  if (content === undefined || typeof content === "string") return content ?? "";
  return content
    .map((block) => {
      if (block.type === "text") return block.text;
      return block.type === "search_result" ? block.content.map((part) => part.text).join("") : `[${block.type}]`;
    })
    .join("");
}

function tell(error: z.ZodError): string {
  const issue = deepest(error.issues);
  const path = issue.path.join(".");
  if (issue.code === "unrecognized_keys") return `${[...issue.path, issue.keys[0]].join(".")}: Extra inputs are not permitted`;
  if (issue.code === "invalid_type" && issue.input === undefined) return `${path}: Field required`;
  return `${path === "" ? "body" : path}: ${issue.message}`;
}

/** A union tells of every branch; the one that got furthest is the one that was meant. */
function deepest(issues: readonly z.core.$ZodIssue[], under: readonly PropertyKey[] = []): z.core.$ZodIssue {
  const first = issues[0];
  if (first === undefined) return { code: "custom", path: [], message: "invalid", input: undefined };
  const path = [...under, ...first.path];
  if (first.code === "invalid_union" && first.errors.length > 0) {
    return first.errors.map((branch) => deepest(branch, path)).reduce((best, other) => (other.path.length > best.path.length ? other : best));
  }
  return { ...first, path };
}
