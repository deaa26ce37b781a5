// A call's result as the log has it, in MCP's words.

import type { CallToolResult } from "@modelcontextprotocol/server";
import type { ResultBlock } from "../../../session-store/events/content.ts";

type Part = CallToolResult["content"][number];

export function contentOf(blocks: readonly ResultBlock[]): Part[] {
  return blocks.flatMap((block, index) => partsOf(block, index));
}

function partsOf(block: ResultBlock, index: number): readonly Part[] {
  switch (block.type) {
    case "text":
      return [{ type: "text", text: block.text }];
    case "search_result":
      return [{ type: "text", text: `${block.title} (${block.source})\n${block.content.map(({ text }) => text).join("\n")}` }];
    case "image":
    case "document":
      return [mediaOf(block, `result://${block.type}/${index}`)];
  }
}

function mediaOf({ type, source }: Extract<ResultBlock, { type: "image" | "document" }>, uri: string): Part {
  switch (source.type) {
    case "base64":
      if (type === "image") return { type: "image", data: source.data, mimeType: source.media_type };
      return { type: "resource", resource: { uri, blob: source.data, mimeType: source.media_type } };
    case "text":
      return { type: "resource", resource: { uri, text: source.data, mimeType: source.media_type } };
    case "url":
      return { type: "resource_link", uri: source.url, name: source.url };
    case "file":
      return { type: "text", text: `[A file: ${source.file_id}]` };
  }
}
