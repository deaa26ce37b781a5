// What a server's tool gave, as the model is to see it: every shape of the specification, once.
//
//   V1  Structured content is shown only where there is no other: most servers give the same in both.
//   V2  What can't be shown is named, with its kind and size; nothing is dropped without a word, and nothing unknown breaks a call.
//   V3  The error flag is the server's; a result is never judged against a schema here.

import { z } from "zod";
import type { ResultBlock } from "../../session-store/events/content.ts";
import { MEDIA_BYTES_MAX } from "./limits.ts";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const text = z.string();

const Contents = z.looseObject({ uri: text.catch(""), mimeType: text.optional().catch(undefined), text: text.optional(), blob: text.optional() });
const Part = z.discriminatedUnion("type", [
  z.looseObject({ type: z.literal("text"), text }),
  z.looseObject({ type: z.literal("image"), data: text, mimeType: text.catch("") }),
  z.looseObject({ type: z.literal("audio"), data: text, mimeType: text.catch("") }),
  z.looseObject({
    type: z.literal("resource_link"),
    uri: text,
    name: text.optional().catch(undefined),
    title: text.optional().catch(undefined),
    description: text.optional().catch(undefined),
    mimeType: text.optional().catch(undefined),
  }),
  z.looseObject({ type: z.literal("resource"), resource: Contents }),
]);
type Part = z.infer<typeof Part>;

const Result = z.looseObject({
  content: z.array(z.unknown()).catch([]),
  structuredContent: z.unknown().optional(),
  isError: z.boolean().catch(false),
});

export interface Shown {
  readonly content: readonly ResultBlock[];
  readonly isError: boolean;
}

/** Null: it is no result of a tool at all. */
export function shownOf(given: unknown): Shown | null {
  const read = Result.safeParse(given);
  if (!read.success) return null;
  const { content, structuredContent, isError } = read.data;
  const budget = { bytes: MEDIA_BYTES_MAX };
  const blocks = joined(content.flatMap((part) => blocksOf(part, budget)));
  if (blocks.length > 0) return { content: blocks, isError };
  const structured = structuredContent === undefined || structuredContent === null ? [] : [says(JSON.stringify(structuredContent, null, 2))]; // V1
  return { content: structured.length > 0 ? structured : [says("(no output)")], isError };
}

const says = (words: string): ResultBlock => ({ type: "text", text: words.toWellFormed() });

function blocksOf(given: unknown, budget: { bytes: number }): readonly ResultBlock[] {
  const read = Part.safeParse(given);
  if (!read.success) return [says(`[A part of a kind that can't be shown: ${kindOf(given)}]`)];
  const part: Part = read.data;
  switch (part.type) {
    case "text":
      return part.text === "" ? [] : [says(part.text)];
    case "image":
      return [mediaOf("picture", part.mimeType, part.data, budget)];
    case "audio":
      return [says(`[Audio (${named(part.mimeType)}, ${bytesOf(part.data)} bytes), which can't be played here]`)];
    case "resource_link": {
      const { uri, name, title, description, mimeType } = part;
      const about = [title ?? name, mimeType, description].filter((each) => each !== undefined && each !== "").join(", ");
      return [says(`[Resource ${uri}${about === "" ? "" : ` (${about})`}]`)];
    }
    case "resource": {
      const { uri, mimeType, text: words, blob } = part.resource;
      if (words !== undefined) return [says(`[Resource ${uri}]\n${words}`)];
      if (blob === undefined) return [says(`[Resource ${uri}, empty]`)];
      return [says(`[Resource ${uri}]`), mediaOf("file", mimeType ?? "", blob, budget)];
    }
  }
}

function mediaOf(noun: string, mimeType: string, data: string, budget: { bytes: number }): ResultBlock {
  const bytes = bytesOf(data);
  const isPicture = PICTURES.has(mimeType);
  const isShown = (isPicture || mimeType === "application/pdf") && isBase64(data);
  if (!isShown) return says(`[A ${noun} (${named(mimeType)}, ${bytes} bytes) that can't be shown]`);
  budget.bytes -= bytes;
  if (budget.bytes < 0) return says(`[A ${noun} (${named(mimeType)}, ${bytes} bytes) was left out: the result is over ${MEDIA_BYTES_MAX} bytes]`);
  const source = { type: "base64" as const, media_type: mimeType, data };
  return isPicture ? { type: "image", source } : { type: "document", source };
}

/** Neighbouring texts as one block: a server may give a line a block. */
function joined(blocks: readonly ResultBlock[]): readonly ResultBlock[] {
  const all: ResultBlock[] = [];
  for (const block of blocks) {
    const last = all.at(-1);
    if (block.type === "text" && last?.type === "text") all[all.length - 1] = { type: "text", text: `${last.text}\n${block.text}` };
    else all.push(block);
  }
  return all;
}

const named = (mimeType: string): string => (mimeType === "" ? "of no known type" : mimeType.slice(0, 100));
const bytesOf = (base64: string): number => Math.floor((base64.length * 3) / 4);
const isBase64 = (data: string): boolean => data !== "" && data.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(data);
const kindOf = (given: unknown): string =>
  typeof given === "object" && given !== null && "type" in given ? JSON.stringify(String(given.type).slice(0, 60)) : "none";
