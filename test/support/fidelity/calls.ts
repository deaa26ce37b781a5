// What is asked of a server that says everything, one by one.

export const CAPABILITIES = { sampling: {}, elicitation: {}, roots: { listChanged: true } };
export const CALLS: readonly [string, object?][] = [
  ["tools/list"],
  ["tools/list", { cursor: "é/+= 2", _meta: { "vendor/in": 1 } }],
  ["tools/call", { name: "content", arguments: {} }],
  ["tools/call", { name: "echo", arguments: { a: [1, 2.5, "é\u0000", null], "": {} }, _meta: { "vendor/in": { x: 1 }, traceparent: "00-1-2-01" } }],
  ["tools/call", { name: "steps", arguments: {}, _meta: { progressToken: "p1" } }],
  ["tools/call", { name: "steps", arguments: {}, _meta: { progressToken: 7 } }],
  ["tools/call", { name: "fails" }],
  ["tools/call", { name: "throws" }],
  ["resources/list"],
  ["resources/templates/list"],
  ["resources/read", { uri: "test://a" }],
  ["resources/read", { uri: "test://none" }],
  ["prompts/list"],
  ["prompts/get", { name: "greet", arguments: { who: "you" } }],
  ["completion/complete", { ref: { type: "ref/prompt", name: "greet" }, argument: { name: "who", value: "o" } }],
  ["no/such", { any: 1 }],
];
/** What a client answers to the questions of such a server. */
export const ANSWERS: Readonly<Record<string, object>> = {
  "sampling/createMessage": {
    role: "assistant",
    content: { type: "text", text: "4" },
    model: "m",
    stopReason: "endTurn",
    _meta: { "vendor/m": 1 },
  },
  "elicitation/create": { action: "accept", content: { name: "é" } },
  "roots/list": { roots: [{ uri: "file:///a", name: "A" }] },
};
