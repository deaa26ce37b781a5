// A talk with a server of the older HTTP+SSE transport, straight or through the door of a hand: all that is heard, whatever stream brought it.

import { request } from "undici";
import type { RpcMessage } from "../mcp.ts";
import { until } from "../until.ts";
import { ANSWERS, CALLS, CAPABILITIES } from "./calls.ts";

export interface Talker {
  readonly heard: RpcMessage[];
  send(message: object): Promise<void>;
  close(): void;
}

const ACCEPT = "application/json, text/event-stream";
const JSON_TYPE = { accept: ACCEPT, "content-type": "application/json" };

/** Reads events as they come; `hear` gets type and data. */
async function read(body: AsyncIterable<Uint8Array>, hear: (type: string, data: string) => void): Promise<void> {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of body) {
    text += decoder.decode(chunk, { stream: true });
    const events = text.split("\n\n");
    text = events.pop() ?? "";
    for (const event of events) {
      const lines = event.split("\n");
      const field = (name: string) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      hear(field("event") ?? "message", field("data") ?? "");
    }
  }
}

/** To the server itself. */
export async function straight(url: string): Promise<Talker> {
  const heard: RpcMessage[] = [];
  const stop = new AbortController();
  const { body } = await request(url, { headers: { accept: "text/event-stream" }, signal: stop.signal });
  let endpoint = "";
  const hear = (type: string, data: string) => {
    if (type === "endpoint") endpoint = new URL(data, url).href;
    else heard.push(JSON.parse(data));
  };
  read(body, hear).catch(() => {});
  await until(() => endpoint !== "", { what: "the endpoint" });
  return {
    heard,
    async send(message) {
      const answer = await request(endpoint, { method: "POST", headers: JSON_TYPE, body: JSON.stringify(message) });
      await answer.body.dump();
    },
    close: () => stop.abort(),
  };
}

/** Through a door, over Streamable HTTP. */
export async function through(url: string, key: Record<string, string>): Promise<Talker> {
  const heard: RpcMessage[] = [];
  const stop = new AbortController();
  let headers: Record<string, string> = { ...key };
  const hear = (_type: string, data: string) => {
    if (data.startsWith("{")) heard.push(JSON.parse(data));
  };
  return {
    heard,
    async send(message) {
      const {
        body,
        headers: given,
        statusCode,
      } = await request(url, { method: "POST", headers: { ...JSON_TYPE, ...headers }, body: JSON.stringify(message) });
      if (typeof given["mcp-session-id"] === "string") headers = { ...headers, "mcp-session-id": given["mcp-session-id"] };
      if (String(given["content-type"]).startsWith("text/event-stream")) return void read(body, hear).catch(() => {});
      const text = await body.text();
      if (text !== "") heard.push(JSON.parse(text));
      if (!("method" in message) || message.method !== "notifications/initialized" || statusCode !== 202) return;
      const listening = await request(url, { headers: { ...headers, accept: "text/event-stream" }, signal: stop.signal });
      read(listening.body, hear).catch(() => {});
    },
    close: () => stop.abort(),
  };
}

const sorted = (messages: readonly RpcMessage[]) => messages.toSorted((one, other) => (JSON.stringify(one) < JSON.stringify(other) ? -1 : 1));

/** All that is said to each step. Messages of one step have no order among streams. */
export async function talk({ heard, send, close }: Talker): Promise<readonly (readonly [step: string, heard: readonly RpcMessage[]])[]> {
  const steps: (readonly [string, readonly RpcMessage[]])[] = [];
  const ask = async (step: string, id: string | number, method: string, params?: object, more = 0) => {
    heard.length = 0;
    const answered = new Set<unknown>();
    void send({ jsonrpc: "2.0", id, method, ...(params && { params }) });
    await until(
      () => {
        for (const message of heard) {
          const answer = ANSWERS[message.method ?? ""];
          if (message.id === undefined || !answer || answered.has(message.id)) continue;
          answered.add(message.id);
          void send({ jsonrpc: "2.0", id: message.id, result: answer });
        }
        return heard.some((message) => message.id === id && message.method === undefined) && heard.length > more;
      },
      { what: () => `${step}: ${JSON.stringify(heard)}` },
    );
    steps.push([step, sorted(heard)]);
  };
  await ask("initialize", 0, "initialize", { protocolVersion: "2025-11-25", capabilities: CAPABILITIES, clientInfo: { name: "test", version: "1" } });
  await send({ jsonrpc: "2.0", method: "notifications/initialized" });
  for (const [index, [method, params]] of CALLS.entries()) await ask(`${method} ${index}`, index + 1, method, params);
  for (const [method, params] of [["ping"], ["logging/setLevel", { level: "info" }], ["resources/subscribe", { uri: "test://a" }]] as const)
    await ask(method, `s-${method}`, method, params);
  await ask("ask", "ask", "tools/call", { name: "ask" });
  void send({ jsonrpc: "2.0", id: "slow", method: "tools/call", params: { name: "slow" } });
  await until(async () => {
    await send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "slow", reason: "enough" } });
    await ask("cancelled", "n", "tools/call", { name: "cancelled" });
    return steps.pop()?.[1].at(-1)?.result.content[0].text === "1";
  });
  await ask("changes", "changes", "tools/call", { name: "changes" }, 5);
  await ask("unsubscribe", "u", "resources/unsubscribe", { uri: "test://a" });
  close();
  return steps;
}
