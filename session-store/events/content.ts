// Content blocks of events, as the wire spells them (contract §6.1). Strict: an unknown field is refused by name.

import { z } from "zod";

const text = z.strictObject({ type: z.literal("text"), text: z.string().min(1) });

const base64Source = z.strictObject({ type: z.literal("base64"), media_type: z.string().min(1).max(255), data: z.string().min(1) });
const urlSource = z.strictObject({ type: z.literal("url"), url: z.url().max(2048) });
export const FileSource = z.strictObject({ type: z.literal("file"), file_id: z.string().min(1).max(255) });
const textSource = z.strictObject({ type: z.literal("text"), media_type: z.literal("text/plain"), data: z.string().min(1) });

const image = z.strictObject({ type: z.literal("image"), source: z.discriminatedUnion("type", [base64Source, urlSource, FileSource]) });

const document = z.strictObject({
  type: z.literal("document"),
  source: z.discriminatedUnion("type", [base64Source, textSource, urlSource, FileSource]),
  title: z.string().max(500).nullish(),
  context: z.string().nullish(),
});

const searchResult = z.strictObject({
  type: z.literal("search_result"),
  source: z.string().min(1),
  title: z.string().min(1),
  content: z.array(text).min(1),
  citations: z.strictObject({ enabled: z.boolean() }).nullish(),
});

export const TextBlock = text;
export const MessageBlock = z.discriminatedUnion("type", [text, image, document]);
export const ResultBlock = z.discriminatedUnion("type", [text, image, document, searchResult]);

export type TextBlock = z.infer<typeof TextBlock>;
export type MessageBlock = z.infer<typeof MessageBlock>;
export type ResultBlock = z.infer<typeof ResultBlock>;
