// A session's log as a text that people and models read.

const BLOCK_CHARS_MAX = 4_000;

interface Shown {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** Markdown, one heading a message; what says nothing to a reader (spans, status changes) is left out. */
export function transcriptOf(title: string, events: readonly Shown[]): string {
  return `# ${title}\n\n${events.flatMap((event) => partOf(event) ?? []).join("\n\n")}\n`;
}

function partOf(event: Shown): string | null {
  switch (event.type) {
    case "user.message":
      return `## User${event.processed_at === null ? " (not read yet)" : ""}\n\n${textOf(event.content)}`;
    case "system.message":
      return `## System\n\n${textOf(event.content)}`;
    case "agent.message":
      return `## Agent\n\n${textOf(event.content)}`;
    case "agent.tool_use":
    case "agent.custom_tool_use":
    case "agent.mcp_tool_use":
      return `**Uses ${String(event.name)}**\n\n${fenced(JSON.stringify(event.input, null, 2) ?? "null")}`;
    case "agent.tool_result":
    case "agent.mcp_tool_result":
    case "user.custom_tool_result":
      return `**Result${event.is_error === true ? " (error)" : ""}**\n\n${fenced(textOf(event.content))}`;
    case "user.tool_confirmation":
      return `*A person said ${String(event.result)}.*`;
    case "user.interrupt":
      return "*Interrupted.*";
    case "session.error":
      return `*Error: ${messageOf(event.error)}*`;
    case "session.status_terminated":
      return "*Archived.*";
    default:
      return null;
  }
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return "";
  return content.map((block: unknown) => (hasText(block) ? cut(block.text) : "[not text]")).join("\n");
}

const hasText = (block: unknown): block is { text: string } =>
  typeof block === "object" && block !== null && "text" in block && typeof block.text === "string";

const messageOf = (error: unknown): string => (typeof error === "object" && error !== null && "message" in error ? String(error.message) : "unknown");

const cut = (text: string): string =>
  text.length <= BLOCK_CHARS_MAX ? text : `${text.slice(0, BLOCK_CHARS_MAX).toWellFormed()} … (${text.length - BLOCK_CHARS_MAX} more characters)`;

/** In a fence longer than any within. */
function fenced(text: string): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([run]) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}\n${cut(text)}\n${fence}`;
}
