// The chat as a web page: `node dist/test/examples/chat/web.js`. A small server between browsers and Manyhands, on the loopback address.
//
//   W1  The API key stays here. A browser has a cookie, and by it one conversation: its own.
//   W2  Nothing changes for a request that another site's page has sent (`Origin`), and no other name than ours is answered (`Host`).
//   W3  The page runs our script and nothing else (`Content-Security-Policy`).

import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import express, { type NextFunction, type Request, type Response } from "express";
import { z } from "zod";
import { findAssistant } from "./assistant.ts";
import { Attendants } from "./attendant.ts";
import { readConfig } from "./config.ts";
import { Conversation } from "./conversation.ts";
import { Cookies } from "./cookie.ts";
import { endRelay, openRelay, relay } from "./relay.ts";

const BODY_BYTES_MAX = 64 * 1024;
const MESSAGE_CHARS_MAX = 16_000;
const STREAMS_MAX = 1_000;
const STOP_MS = 3_000;
const HOST = "127.0.0.1";
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const Key = z.string().regex(/^[\w-]{8,64}$/);
const Message = z.strictObject({ text: z.string().trim().min(1).max(MESSAGE_CHARS_MAX), key: Key });
const Verdict = z.strictObject({ callId: z.string().regex(/^\w{1,100}$/), isAllowed: z.boolean() });
const KeyOnly = z.strictObject({ key: Key });
const Nothing = z.strictObject({});

/** What a browser is told when something can't be done. */
class Refused extends Error {
  readonly status: number;
  constructor(status: number, says: string) {
    super(says);
    this.status = status;
  }
}

const config = readConfig();
const client = new Anthropic({ apiKey: config.apiKey, baseURL: config.url });
const assistant = await findAssistant(client, config.model);
const cookies = new Cookies(config.apiKey);
const attendants = new Attendants((error) => log("attendant.failed", { reason: reasonOf(error) }));
const stopping = new AbortController();
const streams = new Set<Response>();

const app = express();
app.disable("x-powered-by");
app.use(guard);
app.use(express.json({ limit: BODY_BYTES_MAX, strict: true }));
app.use(express.static(join(import.meta.dirname, "page"), { cacheControl: false }));
app.get("/events", events);
app.post("/conversation", begin);
app.post("/messages", async (request, response) => {
  const { text, key } = bodyOf(request, Message);
  await attended(request).say(text, key);
  response.status(204).end();
});
app.post("/confirm", async (request, response) => {
  const { callId, isAllowed } = bodyOf(request, Verdict);
  await attended(request).confirm(callId, isAllowed);
  response.status(204).end();
});
app.post("/interrupt", async (request, response) => {
  const { key } = bodyOf(request, KeyOnly);
  await attended(request).interrupt(key);
  response.status(204).end();
});
app.post("/new", (request, response) => {
  bodyOf(request, Nothing);
  response.setHeader("set-cookie", cookies.clear());
  response.status(204).end();
});
app.use((_request: Request, _response: Response) => {
  throw new Refused(404, "There is nothing here.");
});
app.use(refuse);

const server = createServer(app);
server.listen(config.port, HOST);
await once(server, "listening");
const address = server.address();
const port = typeof address === "object" && address !== null ? address.port : config.port;
/** What a browser may call us. */
const names = [`${HOST}:${port}`, `localhost:${port}`];
log("process.listening", { role: "chat-web", url: `http://${HOST}:${port}` });
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, stop);

/** W2 W3 */
function guard(request: Request, response: Response, next: NextFunction): void {
  response.setHeader("content-security-policy", POLICY);
  response.setHeader("x-content-type-options", "nosniff");
  response.setHeader("referrer-policy", "no-referrer");
  response.setHeader("cross-origin-opener-policy", "same-origin");
  response.setHeader("cross-origin-resource-policy", "same-origin");
  response.setHeader("cache-control", "no-store");
  const { host, origin } = request.headers;
  if (host === undefined || !names.includes(host)) throw new Refused(421, "This address is not served here.");
  const isOurs = origin === undefined ? request.method === "GET" || request.method === "HEAD" : origin === `http://${host}`;
  if (!isOurs) throw new Refused(403, "This request comes from another site.");
  next();
}

/** The browser's conversation; made if it has none, or its session is no longer there. */
async function begin(request: Request, response: Response): Promise<void> {
  const { key } = bodyOf(request, KeyOnly);
  const id = cookies.read(request.headers.cookie);
  if (id === null || !(await isThere(id))) {
    const { sessionId } = await Conversation.start(client, assistant, `start-${key}`);
    response.setHeader("set-cookie", cookies.write(sessionId));
  }
  response.status(204).end();
}

async function isThere(id: string): Promise<boolean> {
  try {
    return (await client.beta.sessions.retrieve(id)).status !== "terminated";
  } catch (error) {
    if (error instanceof Anthropic.APIError && error.status === 404) return false;
    throw error;
  }
}

async function events(request: Request, response: Response): Promise<void> {
  if (streams.size >= STREAMS_MAX) throw new Refused(503, "Too many people are looking. Try again later.");
  const id = cookies.read(request.headers.cookie);
  openRelay(response, id);
  if (id === null) return endRelay(response, { type: "none" });
  const left = new AbortController();
  response.once("close", () => left.abort());
  streams.add(response);
  const conversation = new Conversation(client, id);
  attendants.touch(conversation);
  const after = request.get("last-event-id") ?? null;
  try {
    await relay(response, conversation.follow(after, true, AbortSignal.any([left.signal, stopping.signal])));
    endRelay(response, null);
  } catch (error) {
    log("stream.failed", { reason: reasonOf(error) });
    endRelay(response, error instanceof Anthropic.APIError && error.status === 404 ? { type: "gone" } : null);
  } finally {
    streams.delete(response);
    left.abort();
  }
}

function attended(request: Request): Conversation {
  const id = cookies.read(request.headers.cookie);
  if (id === null) throw new Refused(410, "There is no conversation yet.");
  const conversation = new Conversation(client, id);
  if (!attendants.touch(conversation)) throw new Refused(503, "Too many people are chatting. Try again later.");
  return conversation;
}

function bodyOf<T>(request: Request, schema: z.ZodType<T>): T {
  const read = schema.safeParse(request.body);
  if (!read.success) throw new Refused(400, "This can't be sent.");
  return read.data;
}

/** Express tells errors from other handlers by its four parameters. */
function refuse(error: unknown, _request: Request, response: Response, _next: NextFunction): void {
  const { status, says } = answerOf(error);
  if (status >= 500) log("request.failed", { status, reason: reasonOf(error) });
  if (response.headersSent) response.destroy();
  else response.status(status).json({ message: says });
}

function answerOf(error: unknown): { status: number; says: string } {
  if (error instanceof Refused) return { status: error.status, says: error.message };
  if (error instanceof Anthropic.APIConnectionError) return { status: 503, says: "The assistant can't be reached. Try again in a moment." };
  if (error instanceof Anthropic.APIError) {
    if (error.status === 404) return { status: 410, says: "This conversation is no longer there." };
    const isOurs = error.status !== undefined && error.status < 500 && error.status !== 401 && error.status !== 403;
    return isOurs
      ? { status: 409, says: "This is not possible now: the conversation has gone on." }
      : { status: 503, says: "The assistant is not available. Try again in a moment." };
  }
  if (error instanceof Error && "status" in error && typeof error.status === "number" && error.status < 500) {
    return { status: error.status, says: "This can't be sent." };
  }
  return { status: 500, says: "Something went wrong here." };
}

/** What went wrong, without what anybody said. */
function reasonOf(error: unknown): string {
  if (error instanceof Anthropic.APIError) return `${error.name} ${error.status ?? ""}`.trim();
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}

function log(msg: string, facts: Record<string, unknown>): void {
  process.stdout.write(`${JSON.stringify({ msg, ...facts })}\n`);
}

function stop(): void {
  stopping.abort();
  attendants.close();
  for (const response of streams) response.end();
  server.close(() => process.exit(0));
  server.closeIdleConnections();
  setTimeout(() => process.exit(0), STOP_MS).unref();
}
