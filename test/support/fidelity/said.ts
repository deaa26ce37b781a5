// What the two servers that say everything say: odd on purpose wherever the protocol leaves room.

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const icons = [{ src: `data:image/png;base64,${PNG}`, mimeType: "image/png", sizes: ["1x1"] }];
const anything = { type: "object" as const };

export const TOOLS = [
  {
    name: "content",
    title: "All content",
    description: "Every kind of content, “quoted”, \u2028 and \\ escaped",
    inputSchema: { ...anything, properties: { odd: { type: "number", maximum: 9_007_199_254_740_991, "x-vendor": [1, 2.5e-7] } }, $defs: { a: {} } },
    outputSchema: { ...anything, properties: { n: { type: "number" } }, required: ["n"] },
    annotations: { title: "Shown", readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
    icons,
    _meta: { "vendor/tool": { deep: [null, true] } },
  },
  ...["echo", "steps", "ask", "slow", "cancelled", "fails", "throws", "changes"].map((name) => ({
    name,
    description: `The tool ${name}`,
    inputSchema: anything,
  })),
];

export const CONTENT = {
  content: [
    {
      type: "text" as const,
      text: 'a "text"\nof \u0001 two lines 🖐',
      annotations: { audience: ["user" as const], priority: 0.1 },
      _meta: { "vendor/block": 1 },
    },
    { type: "image" as const, data: PNG, mimeType: "image/png" },
    { type: "audio" as const, data: "UklGRg==", mimeType: "audio/wav" },
    { type: "resource_link" as const, uri: "test://a", name: "a", title: "A", mimeType: "text/plain" },
    { type: "resource" as const, resource: { uri: "test://b", mimeType: "text/plain", text: "inside", _meta: { "vendor/r": 0 } } },
  ],
  structuredContent: { n: 1, nested: { list: [1, "2", null, { three: 3 }] }, "": "an empty name" },
  _meta: { "vendor/result": "kept", traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" },
};

export const PROMPTS = [
  {
    name: "greet",
    title: "Greet",
    description: "Greets",
    arguments: [{ name: "who", description: "Whom", required: true }],
    icons,
    _meta: { "vendor/p": 1 },
  },
];
export const PROMPT = {
  description: "A greeting",
  messages: [
    { role: "user" as const, content: { type: "text" as const, text: "Hello" } },
    { role: "assistant" as const, content: { type: "image" as const, data: PNG, mimeType: "image/png" } },
  ],
  _meta: { "vendor/g": 1 },
};
export const RESOURCES = [
  {
    uri: "test://a",
    name: "a",
    title: "A",
    description: "First",
    mimeType: "text/plain",
    size: 3,
    annotations: { priority: 1 },
    icons,
    _meta: { "vendor/l": 1 },
  },
];
export const TEMPLATES = [{ uriTemplate: "test://{id}", name: "t", description: "Any", mimeType: "text/plain", _meta: { "vendor/t": 1 } }];
export const RESOURCE = {
  contents: [
    { uri: "test://a", mimeType: "text/plain", text: "abc", _meta: { "vendor/c": 1 } },
    { uri: "test://a", mimeType: "application/octet-stream", blob: "AAEC" },
  ],
  _meta: { "vendor/read": 1 },
};
export const COMPLETION = { completion: { values: ["one", "two"], total: 2, hasMore: false }, _meta: { "vendor/comp": 1 } };
export const ERROR = { code: -31_999, message: "Refused on purpose", data: { why: ["because", { of: "this" }] } };
