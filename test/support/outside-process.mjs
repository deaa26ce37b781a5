// A harness's own process, in plain JavaScript: it is given the address and the key of its session's hands on standard input, works with nothing else,
// and says what came of it on standard output.

import { createInterface } from "node:readline";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

for await (const line of createInterface({ input: process.stdin })) {
  const { url, key, marks } = JSON.parse(line);
  const client = new Client({ name: "outside", version: "1" }, { versionNegotiation: { mode: "auto" } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { authorization: `Bearer ${key}` } } }));
  const call = async (name, args) => {
    const { content, structuredContent, isError } = await client.callTool({ name, arguments: args }, { timeout: 60_000 });
    return { text: content.map(({ text }) => text).join(""), structured: structuredContent, isError: isError === true };
  };
  const { tools } = await client.listTools();
  const bash = await call("bash", { command: `echo from outside >> ${marks}; cat ${marks}` });
  const docs = await call("mcp__docs__search", { text: "hello" });
  const log = await call("mcp__session__get_events", { types: ["user.message"], limit: 5 });
  process.stdout.write(`${JSON.stringify({ tools: tools.map(({ name }) => name), bash, docs, log })}\n`);
  await client.close();
}
