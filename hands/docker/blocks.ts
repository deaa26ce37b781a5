// What a container says that a tool's result is, read and checked: it goes into a log that every later request of the session repeats.

import { z } from "zod";
import type { ResultBlock } from "../../session-store/events/content.ts";
import { OUTPUT_CHARS_MAX } from "../limits.ts";
import { cut } from "../tools/cap.ts";
import { pictureOf } from "../tools/picture.ts";

const PDF_BASE64_MAX = 5 * 1024 * 1024;

const base64 = (type: "image" | "document") =>
  z.object({ type: z.literal(type), source: z.object({ type: z.literal("base64"), media_type: z.string().max(100), data: z.string().min(1) }) });
export const Block = z.discriminatedUnion("type", [z.object({ type: z.literal("text"), text: z.string() }), base64("image"), base64("document")]);
/** A block that the model's API takes, or a note instead of it. */
export function checked(block: z.infer<typeof Block>): ResultBlock {
  const note = (text: string) => ({ type: "text", text }) as const;
  if (block.type === "text") {
    const text = cut(block.text.toWellFormed(), 2 * OUTPUT_CHARS_MAX);
    return note(text === "" ? "(no output)" : text);
  }
  const { data } = block.source;
  if (block.type === "document") {
    const isPdf = data.length <= PDF_BASE64_MAX && Buffer.from(data.slice(0, 8), "base64").toString("latin1").startsWith("%PDF-");
    if (!isPdf) return note("[a document that can't be shown]");
    return { type: "document", source: { type: "base64", media_type: "application/pdf", data } };
  }
  const picture = pictureOf(Buffer.from(data, "base64"));
  if (picture?.type !== "good") return note("[a picture that can't be shown]");
  return { type: "image", source: { type: "base64", media_type: picture.mediaType, data: picture.data } };
}
