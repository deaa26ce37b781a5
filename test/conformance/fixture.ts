// The whole surface that the conformance suite expects of a server.

import type { CallToolResult } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { Ask, CallContext, PromptEntry, Surface, ToolEntry } from "../../gateway/mcp/surface.ts";
import { ask, tool } from "../../gateway/mcp/surface.ts";
import { ASKING, filledIn, form, PLAIN, PNG, sampling, text } from "./fixture-tools.ts";

const NAME = form("What is your name?", { properties: { name: { type: "string" } }, required: ["name"] });
const COLOUR = form("What is your favourite colour?", { properties: { color: { type: "string" } }, required: ["color"] });
const CONFIRM = form("Please confirm", { properties: { ok: { type: "boolean" } }, required: ["ok"] });
const ROOTS = { method: "roots/list" } as const;

function asking(name: string, run: (context: CallContext) => CallToolResult | Ask): ToolEntry {
  return tool({ name, description: "Asks the client before it answers", input: z.object({}), run: async (_, context) => run(context) });
}
const hasAll = ({ answers }: CallContext, ...names: string[]) => names.every((name) => answers?.[name] !== undefined);

const ROUNDS: readonly ToolEntry[] = [
  asking("test_input_required_result_elicitation", (context) => {
    const filled = filledIn(context, "user_name");
    return typeof filled?.name === "string" ? text(`Hello, ${filled.name}!`) : ask({ user_name: NAME }, null);
  }),
  asking("test_input_required_result_sampling", (context) =>
    hasAll(context, "capital_question") ? text("The model answered.") : ask({ capital_question: sampling("What is the capital of France?") }, null),
  ),
  asking("test_input_required_result_list_roots", (context) =>
    hasAll(context, "client_roots") ? text("The roots came.") : ask({ client_roots: ROOTS }, null),
  ),
  asking("test_input_required_result_request_state", (context) =>
    filledIn(context, "confirm") && context.state === "kept" ? text("state-ok") : ask({ confirm: CONFIRM }, "kept"),
  ),
  asking("test_input_required_result_multiple_inputs", (context) =>
    hasAll(context, "user_name", "greeting", "client_roots")
      ? text("Everything came.")
      : ask({ user_name: NAME, greeting: sampling("Generate a greeting"), client_roots: ROOTS }, "several"),
  ),
  asking("test_input_required_result_multi_round", (context) => {
    if (context.state === "second" && filledIn(context, "step2")) return text("Both rounds are done.");
    if (context.state === "first" && filledIn(context, "step1")) return ask({ step2: COLOUR }, "second");
    return ask({ step1: NAME }, "first");
  }),
  asking("test_input_required_result_tampered_state", (context) =>
    filledIn(context, "confirm") ? text("The state is whole.") : ask({ confirm: CONFIRM }, "untouched"),
  ),
  asking("test_input_required_result_capabilities", (context) => {
    if (Object.keys(context.answers ?? {}).length > 0) return text("Something came.");
    const { elicitation, sampling: samples } = context.client;
    if (!elicitation && !samples) return text("This client can answer nothing.");
    return ask({ ...(elicitation && { form: NAME }), ...(samples && { model: sampling("Say something") }) }, null);
  }),
  asking("test_missing_capability", (context) => (hasAll(context, "model") ? text("It came.") : ask({ model: sampling("Say something") }, null))),
  asking("test_streaming_elicitation", (context) => (filledIn(context, "form") ? text("It came.") : ask({ form: NAME }, null))),
  asking("test_logging_tool", (context) => {
    for (const level of ["debug", "info", "warning", "error"] as const) context.log(level, `A line at ${level}`);
    return text("Logged.");
  }),
];

const said = (words: string) => ({ role: "user" as const, content: { type: "text" as const, text: words } });
const PROMPTS: readonly PromptEntry[] = [
  {
    definition: { name: "test_simple_prompt", description: "A prompt without arguments" },
    get: async () => ({ messages: [said("This is a simple prompt for testing.")] }),
  },
  {
    definition: {
      name: "test_prompt_with_arguments",
      description: "A prompt with arguments",
      arguments: ["arg1", "arg2"].map((name) => ({ name, description: `${name} of the test`, required: true })),
    },
    get: async ({ arg1, arg2 }) => ({ messages: [said(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)] }),
  },
  {
    definition: {
      name: "test_prompt_with_embedded_resource",
      description: "A prompt with a resource in it",
      arguments: [{ name: "resourceUri", description: "URI of the resource to embed", required: true }],
    },
    get: async ({ resourceUri = "" }) => ({
      messages: [
        {
          role: "user",
          content: { type: "resource", resource: { uri: resourceUri, mimeType: "text/plain", text: "Embedded resource content for testing." } },
        },
        said("Please process the embedded resource above."),
      ],
    }),
  },
  {
    definition: { name: "test_prompt_with_image", description: "A prompt with a picture" },
    get: async () => ({
      messages: [{ role: "user", content: { type: "image", data: PNG, mimeType: "image/png" } }, said("Please analyze the image above.")],
    }),
  },
  {
    definition: { name: "test_input_required_result_prompt", description: "A prompt that asks first" },
    get: async (_, context) => {
      const filled = filledIn(context, "user_context");
      return filled
        ? { messages: [said(`Context: ${String(filled.context)}`)] }
        : ask({ user_context: form("What context?", { properties: { context: { type: "string" } }, required: ["context"] }) }, null);
    },
  },
];

const STATIC = [
  { uri: "test://static-text", name: "static-text", mimeType: "text/plain", text: "This is the content of the static text resource." },
  { uri: "test://static-binary", name: "static-binary", mimeType: "image/png", blob: PNG },
  { uri: "test://watched-resource", name: "watched-resource", mimeType: "text/plain", text: "Watched resource content" },
];

/** `extra`: tools of a test's own. */
export function fixtureSurface(extra: readonly ToolEntry[] = []): Surface {
  const hearers = new Set<(list: "tools" | "prompts" | "resources") => void>();
  const trigger = (list: "tools" | "prompts") =>
    tool({
      name: `test_trigger_${list === "tools" ? "tool" : "prompt"}_change`,
      description: `Says that the ${list} changed`,
      input: z.object({}),
      run: async () => {
        for (const hear of hearers) hear(list);
        return text("Told.");
      },
    });
  return {
    info: { name: "conformance-fixture", version: "1.0.0" },
    tools: [...PLAIN, ...ASKING, ...ROUNDS, trigger("tools"), trigger("prompts"), ...extra],
    prompts: PROMPTS,
    resources: {
      templates: [{ uriTemplate: "test://template/{id}/data", name: "template", mimeType: "application/json" }],
      list: async () => ({ resources: STATIC.map(({ uri, name, mimeType }) => ({ uri, name, mimeType })) }),
      read: async (uri) => {
        const found = STATIC.find((each) => each.uri === uri);
        if (found) return { contents: [{ uri, mimeType: found.mimeType, ...(found.blob ? { blob: found.blob } : { text: found.text ?? "" }) }] };
        const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
        if (id === undefined) return null;
        return { contents: [{ uri, mimeType: "application/json", text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) }] };
      },
      mayWatch: async (uri) => STATIC.some((each) => each.uri === uri),
      watch: (_uri, _changed, signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
    },
    complete: async () => ({ values: [] }),
    onListChanged(hear) {
      hearers.add(hear);
      return () => hearers.delete(hear);
    },
  };
}
