// Requests of the stateless era, written by hand: for what no well-behaved client does.

export interface RawAnswer {
  readonly status: number;
  /** Every message of the answer, the last one with the result or the error. */
  readonly messages: readonly Readonly<Record<string, unknown>>[];
  readonly last: { readonly result?: Record<string, unknown>; readonly error?: { code: number; message: string; data?: unknown } };
}

const ALL = { elicitation: {}, sampling: {}, roots: {} };

export interface RawOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly capabilities?: object;
  readonly meta?: Readonly<Record<string, unknown>>;
  readonly signal?: AbortSignal;
}

let count = 0;

export async function askRaw(url: string, method: string, params: Readonly<Record<string, unknown>>, options: RawOptions = {}): Promise<RawAnswer> {
  count += 1;
  const name = typeof params.name === "string" ? params.name : typeof params.uri === "string" ? params.uri : null;
  const response = await fetch(url, {
    method: "POST",
    headers: {
      accept: "application/json, text/event-stream",
      "content-type": "application/json",
      "mcp-protocol-version": "2026-07-28",
      "mcp-method": method,
      ...(name !== null && { "mcp-name": name }),
      ...options.headers,
    },
    body: JSON.stringify({
      jsonrpc: "2.0",
      id: count,
      method,
      params: {
        ...params,
        _meta: {
          "io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientInfo": { name: "raw", version: "1" },
          "io.modelcontextprotocol/clientCapabilities": options.capabilities ?? ALL,
          ...options.meta,
        },
      },
    }),
    ...(options.signal && { signal: options.signal }),
  });
  const text = await response.text();
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") === true;
  const texts = isStream ? [...text.matchAll(/^data: ?(.+)$/gm)].map(([, data = ""]) => data) : text === "" ? [] : [text];
  const messages = texts.map((each) => JSON.parse(each) as Record<string, unknown>);
  return { status: response.status, messages, last: messages.at(-1) ?? {} };
}
