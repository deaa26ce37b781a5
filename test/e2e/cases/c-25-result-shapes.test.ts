// Every standard shape of a result reaches the model once, and the error flag survives.
//
// nicobailon/pi-mcp-adapter#113, MoonshotAI/kimi-code#3234, frontman-ai/frontman#1545, IBM/mcp-context-forge#4042

import { afterEach, beforeEach, expect, test } from "vitest";
import { closeHands, type OpenHand, openUrl } from "../../support/mcp/hand.ts";
import { RawServer, tool } from "../../support/mcp/raw.ts";
import { png } from "../../support/pictures.ts";

const PIXEL_PNG = png(2, 2).toString("base64");

const structured = { rows: [1, 2] };
const SHAPES: Record<string, { readonly result: object; readonly shown: unknown; readonly isError?: boolean }> = {
  text: { result: { content: [{ type: "text", text: "words" }] }, shown: ["words"] },
  image: {
    result: { content: [{ type: "image", data: PIXEL_PNG, mimeType: "image/png" }] },
    shown: [{ type: "image", source: { type: "base64", media_type: "image/png", data: PIXEL_PNG } }],
  },
  "odd image": {
    result: { content: [{ type: "image", data: "AAAA", mimeType: "image/tiff" }] },
    shown: ["[A picture (image/tiff, 3 bytes) that can't be shown]"],
  },
  audio: {
    result: { content: [{ type: "audio", data: "AAAA", mimeType: "audio/wav" }] },
    shown: ["[Audio (audio/wav, 3 bytes), which can't be played here]"],
  },
  link: {
    result: { content: [{ type: "resource_link", uri: "file:///a.md", name: "a", mimeType: "text/markdown" }] },
    shown: ["[Resource file:///a.md (a, text/markdown)]"],
  },
  embedded: { result: { content: [{ type: "resource", resource: { uri: "x://1", text: "inner" } }] }, shown: ["[Resource x://1]\ninner"] },
  "embedded bytes": {
    result: { content: [{ type: "resource", resource: { uri: "x://2", blob: "AAAA", mimeType: "application/zip" } }] },
    shown: ["[Resource x://2]\n[A file (application/zip, 3 bytes) that can't be shown]"],
  },
  structured: { result: { content: [], structuredContent: structured }, shown: [JSON.stringify(structured, null, 2)] },
  "structured alone": { result: { structuredContent: structured }, shown: [JSON.stringify(structured, null, 2)] },
  both: { result: { content: [{ type: "text", text: '{"rows":[1,2]}' }], structuredContent: structured }, shown: ['{"rows":[1,2]}'] },
  "against its schema": { result: { content: [{ type: "text", text: "no rows" }], structuredContent: { other: 1 } }, shown: ["no rows"] },
  empty: { result: { content: [] }, shown: ["(no output)"] },
  error: { result: { content: [{ type: "text", text: "it broke" }], isError: true }, shown: ["it broke"], isError: true },
  unknown: {
    result: {
      content: [
        { type: "hologram", data: 1 },
        { type: "text", text: "words" },
      ],
    },
    shown: ['[A part of a kind that can\'t be shown: "hologram"]\nwords'],
  },
};

let server: RawServer;
let hand: OpenHand;
beforeEach(async () => {
  const outputSchema = { type: "object", properties: { rows: { type: "array" } }, required: ["rows"] };
  server = await RawServer.start({
    hasSessions: true,
    tools: Object.keys(SHAPES).map((name) => tool(name, { outputSchema })),
    call: (name) => SHAPES[name]?.result,
  });
  hand = openUrl(server.url);
});
afterEach(async () => {
  await closeHands();
  await server.close();
});

test.each(Object.entries(SHAPES))("%s", async (name, { shown, isError = false }) => {
  const outcome = await hand.call(name);
  if (outcome.type !== "done") throw new Error(JSON.stringify(outcome));
  expect(outcome.content.map((block) => (block.type === "text" ? block.text : block))).toEqual(shown);
  expect(outcome.isError).toBe(isError);
});
