// The tools that the conformance suite calls by name, as a surface of our door.

import { setTimeout as sleep } from "node:timers/promises";
import type { CallToolResult, InputRequest } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Ask, CallContext, ToolEntry } from "../../gateway/mcp/surface.ts";
import { ask, failure, tool } from "../../gateway/mcp/surface.ts";

export const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";
const NONE = z.object({});

const text = (said: string): CallToolResult => ({ content: [{ type: "text", text: said }] });
const fixed = (name: string, description: string, content: CallToolResult["content"]): ToolEntry =>
  tool({ name, description, input: NONE, run: async () => ({ content }) });

const resource = (uri: string, mimeType: string, said: string) => ({ type: "resource" as const, resource: { uri, mimeType, text: said } });

export const PLAIN: readonly ToolEntry[] = [
  fixed("test_simple_text", "Answers with text", [{ type: "text", text: "This is a simple text response for testing." }]),
  fixed("test_image_content", "Answers with a picture", [{ type: "image", data: PNG, mimeType: "image/png" }]),
  fixed("test_audio_content", "Answers with sound", [{ type: "audio", data: WAV, mimeType: "audio/wav" }]),
  fixed("test_embedded_resource", "Answers with a resource", [
    resource("test://embedded-resource", "text/plain", "This is an embedded resource content."),
  ]),
  fixed("test_multiple_content_types", "Answers with several kinds of content", [
    { type: "text", text: "Multiple content types test:" },
    { type: "image", data: PNG, mimeType: "image/png" },
    resource("test://mixed-content-resource", "application/json", JSON.stringify({ test: "data", value: 123 })),
  ]),
  tool({
    name: "test_error_handling",
    description: "Fails",
    input: NONE,
    run: async () => failure("This tool intentionally returns an error for testing"),
  }),
  tool({
    name: "test_tool_with_logging",
    description: "Logs three times",
    input: NONE,
    async run(_, { log }) {
      for (const said of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
        log("info", said);
        await sleep(50);
      }
      return text("Tool with logging executed successfully");
    },
  }),
  tool({
    name: "test_tool_with_progress",
    description: "Says how far it is",
    input: NONE,
    async run(_, { progress, progressToken }) {
      for (const done of [0, 50, 100]) {
        progress(done, 100, `Completed step ${done} of 100`);
        await sleep(50);
      }
      return text(String(progressToken ?? 0));
    },
  }),
  tool({
    name: "test_reconnection",
    description: "Loses its connection in the middle",
    input: NONE,
    async run(_, { hangUp }) {
      hangUp();
      await sleep(100);
      return text("Reconnection test completed successfully.");
    },
  }),
  {
    scope: "sessions:write",
    definition: {
      name: "json_schema_2020_12_tool",
      description: "Has a schema of the newest dialect",
      inputSchema: {
        $schema: "https://json-schema.org/draft/2020-12/schema",
        type: "object",
        $defs: { address: { $anchor: "addressDef", type: "object", properties: { street: { type: "string" }, city: { type: "string" } } } },
        properties: {
          name: { type: "string" },
          address: { $ref: "#/$defs/address" },
          contactMethod: { type: "string", enum: ["phone", "email"] },
          phone: { type: "string" },
          email: { type: "string" },
        },
        allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
        if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
        // biome-ignore lint/suspicious/noThenProperty: JSON Schema's word.
        then: { required: ["phone"] },
        else: { required: ["email"] },
        additionalProperties: false,
      },
    },
    call: async (args) => text(`called with ${JSON.stringify(args)}`),
  },
];

type Schema = { properties: Record<string, unknown>; required?: string[] };
export const form = (message: string, { properties, required = [] }: Schema): InputRequest =>
  ({ method: "elicitation/create", params: { message, requestedSchema: { type: "object", properties, required } } }) as InputRequest;
export const sampling = (prompt: string): InputRequest => ({
  method: "sampling/createMessage",
  params: { messages: [{ role: "user", content: { type: "text", text: prompt } }], maxTokens: 100 },
});

const Elicited = z.looseObject({ action: z.string(), content: z.record(z.string(), z.unknown()).optional() });
const Sampled = z.looseObject({ content: z.looseObject({ text: z.string() }) });

/** What was filled in, or null. */
export function filledIn({ answers }: CallContext, name: string): Readonly<Record<string, unknown>> | null {
  const read = Elicited.safeParse(answers?.[name]);
  return read.success && read.data.action === "accept" ? (read.data.content ?? {}) : null;
}

function elicit(name: string, description: string, question: InputRequest, says: string): ToolEntry {
  return tool({
    name,
    description,
    input: z.object({ message: z.string().optional() }),
    async run({ message }, { answers }): Promise<CallToolResult | Ask> {
      const asked = message === undefined ? question : ({ ...question, params: { ...question.params, message } } as InputRequest);
      const found = Elicited.safeParse(answers?.form);
      if (!found.success) return ask({ form: asked }, null);
      return text(`${says}: action=${found.data.action}, content=${JSON.stringify(found.data.content ?? {})}`);
    },
  });
}

export const ASKING: readonly ToolEntry[] = [
  tool({
    name: "test_sampling",
    description: "Asks the client's model",
    input: z.object({ prompt: z.string().describe("The prompt to send to the LLM") }),
    async run({ prompt }, { answers }) {
      const found = Sampled.safeParse(answers?.model);
      return found.success ? text(`LLM response: ${found.data.content.text}`) : ask({ model: sampling(prompt) }, null);
    },
  }),
  elicit(
    "test_elicitation",
    "Asks the user",
    form("?", { properties: { response: { type: "string", description: "User's response" } }, required: ["response"] }),
    "User response",
  ),
  elicit(
    "test_elicitation_sep1034_defaults",
    "Asks with defaults",
    form("Please review and update the form fields with defaults", {
      properties: {
        name: { type: "string", description: "User name", default: "John Doe" },
        age: { type: "integer", description: "User age", default: 30 },
        score: { type: "number", description: "User score", default: 95.5 },
        status: { type: "string", description: "User status", enum: ["active", "inactive", "pending"], default: "active" },
        verified: { type: "boolean", description: "Verification status", default: true },
      },
    }),
    "Elicitation completed",
  ),
  elicit(
    "test_elicitation_sep1330_enums",
    "Asks with choices",
    form("Please select options from the enum fields", {
      properties: {
        untitledSingle: { type: "string", enum: ["option1", "option2", "option3"] },
        titledSingle: {
          type: "string",
          oneOf: ["First", "Second", "Third"].map((title, index) => ({ const: `value${index + 1}`, title: `${title} Option` })),
        },
        legacyEnum: { type: "string", enum: ["opt1", "opt2", "opt3"], enumNames: ["Option One", "Option Two", "Option Three"] },
        untitledMulti: { type: "array", minItems: 1, maxItems: 3, items: { type: "string", enum: ["option1", "option2", "option3"] } },
        titledMulti: {
          type: "array",
          minItems: 1,
          maxItems: 3,
          items: { anyOf: ["First", "Second", "Third"].map((title, index) => ({ const: `value${index + 1}`, title: `${title} Choice` })) },
        },
      },
    }),
    "Elicitation completed",
  ),
];

export { text };
