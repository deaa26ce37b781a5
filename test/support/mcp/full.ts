// What the servers that use the whole protocol show and ask, the same in both eras.

export const TOOLS = [
  {
    name: "add",
    description: "Adds.",
    inputSchema: { type: "object" as const, properties: { a: { type: "number" }, b: { type: "number" } } },
    outputSchema: { type: "object" as const, properties: { sum: { type: "number" } }, required: ["sum"] },
  },
  ...["steps", "wait", "fail", "ask", "sample", "roots", "both", "patient", "change"].map((name) => ({
    name,
    description: `The tool ${name}.`,
    inputSchema: { type: "object" as const },
  })),
];
export const PROMPT = { name: "about", description: "Asks about something.", arguments: [{ name: "topic", required: true }] };
export const RESOURCE = { uri: "words://first", name: "first", mimeType: "text/plain" };
export const FORM = {
  mode: "form" as const,
  message: "Who are you?",
  requestedSchema: { type: "object" as const, properties: { name: { type: "string" as const } }, required: ["name"] },
};
export const SAMPLE = { messages: [{ role: "user" as const, content: { type: "text" as const, text: "Say something." } }], maxTokens: 10 };
