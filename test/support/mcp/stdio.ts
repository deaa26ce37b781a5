// A server over standard input and output, as a program: `node stdio.js MODE`. It speaks the handshake era, and misbehaves as its mode says.
//
//   plain        a good one
//   noisy        banners, its own token and log lines between its frames
//   pieces       a frame of five megabytes in small pieces
//   deaf         does not end when its input closes
//   modern       knows the stateless era only
//   exit         ends before it answers anything
//   flood        a million words of progress before an answer
//   babble       a million lines that are no frames before an answer
//   talker       says on its standard error what it is told

import { createInterface } from "node:readline";

const [mode = "plain"] = process.argv.slice(2);
if (mode === "exit") {
  process.stderr.write("no database\n");
  process.exit(3);
}
if (mode === "noisy") process.stdout.write(`=== Server 1.0 ===\n\n{not json}\nlistening, token ${process.env.SERVER_TOKEN ?? "none"}\n`);
if (mode === "deaf") setInterval(() => {}, 1_000);

const input = createInterface({ input: process.stdin });
if (mode !== "deaf") input.on("close", () => process.exit(0));
input.on("line", (line) => {
  const { id, method, params } = JSON.parse(line) as { id?: number; method: string; params?: { name?: string; arguments?: { text?: string } } };
  if (id === undefined) return;
  void answer(id, method, params?.name ?? "", params?.arguments?.text ?? "");
});

async function answer(id: number, method: string, name: string, text: string): Promise<void> {
  const isModern = mode === "modern";
  if (method === "initialize" && isModern) return send({ id, error: { code: -32_022, message: "Unsupported protocol version" } });
  if (method === "initialize")
    return send({ id, result: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "stdio", version: "1" } } });
  if (method === "server/discover" && isModern)
    return send({
      id,
      result: { resultType: "complete", supportedVersions: ["2026-07-28"], capabilities: { tools: {} }, ttlMs: 0, cacheScope: "private" },
    });
  if (method === "tools/list") {
    const tools = ["echo", "exit", "pid", "environment", "big"].map((each) => ({ name: each, inputSchema: { type: "object" } }));
    return send({ id, result: { tools, ...(isModern ? { resultType: "complete", ttlMs: 0, cacheScope: "private" } : {}) } });
  }
  if (method !== "tools/call") return send({ id, error: { code: -32_601, message: "Method not found" } });
  if (name === "exit") process.exit(7);
  if (mode === "flood") await pour(JSON.stringify({ jsonrpc: "2.0", method: "notifications/progress", params: { progressToken: id, progress: 1 } }));
  if (mode === "babble") await pour("nothing that anyone wants to know");
  if (mode === "talker") process.stderr.write(`${text}\n`);
  const said =
    name === "pid" ? String(process.pid) : name === "environment" ? JSON.stringify(process.env) : name === "big" ? "x".repeat(5 * 1024 * 1024) : text;
  send({ id, result: { content: [{ type: "text", text: said }], ...(isModern ? { resultType: "complete" } : {}) } });
}

async function pour(line: string): Promise<void> {
  const piece = `${line}\n`.repeat(100);
  for (let n = 0; n < 10_000; n += 1) if (!process.stdout.write(piece)) await new Promise((resolve) => process.stdout.once("drain", resolve));
}

function send(message: object): void {
  const text = `${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`;
  if (mode === "noisy") process.stdout.write("INFO about to answer\n");
  if (mode !== "pieces") return void process.stdout.write(text);
  for (let at = 0; at < text.length; at += 1_024) process.stdout.write(text.slice(at, at + 1_024));
}
