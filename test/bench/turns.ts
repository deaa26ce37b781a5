// Turns: what stands between a user's message and the model, and what a whole turn costs when the model costs nothing.

import Anthropic from "@anthropic-ai/sdk";
import { times } from "./figures.ts";
import type { Product } from "./product.ts";

export const say = (text: string) => ({ events: [{ type: "user.message" as const, content: [{ type: "text" as const, text }] }] });
const mark = () => `mark-${Math.random().toString(36).slice(2)}`;

/** Creating a session, answered. */
export const createSession = (product: Product, n: number) =>
  times(n, async () => {
    await product.newSession();
    return undefined;
  });

/** From the send to the first byte of the model request at the model. */
export const messageToModel = (product: Product, n: number) =>
  times(n, async () => {
    const session = await product.newSession();
    const nonce = mark();
    const started = performance.now();
    await product.client.beta.sessions.events.send(session, say(`say: ok\n${nonce}`));
    const took = (await product.arrival(nonce)) - started;
    await idle(product, session);
    return took;
  });

interface Stream {
  readonly events: AsyncIterable<{ type: string }>;
  close(): void;
}

async function openStream(product: Product, session: string, isPreviewed = false): Promise<Stream> {
  const stream = await product.client.beta.sessions.events.stream(session, isPreviewed ? { event_deltas: ["agent.message"] } : {});
  return { events: stream as AsyncIterable<{ type: string }>, close: () => stream.controller.abort() };
}

async function timeTo(product: Product, script: string, matches: (event: { type: string }) => boolean, isPreviewed = false): Promise<number> {
  const session = await product.newSession();
  const stream = await openStream(product, session, isPreviewed);
  const started = performance.now();
  const sent = product.client.beta.sessions.events.send(session, say(script));
  let took = Number.NaN;
  for await (const event of stream.events) {
    if (Number.isNaN(took) && matches(event)) took = performance.now() - started;
    if (event.type === "session.status_idle") break;
  }
  stream.close();
  await sent;
  if (Number.isNaN(took)) throw new Error("The event that was waited for did not come.");
  return took;
}

/** From the send to the message's own event on the stream. */
export const sendToEcho = (product: Product, n: number) => times(n, () => timeTo(product, "say: ok", (event) => event.type === "user.message"));

/** From the send to the first piece of text on the stream. */
export const timeToFirstToken = (product: Product, n: number, script: string) =>
  times(n, () => timeTo(product, script, (event) => event.type === "event_delta", true));

/** A whole turn, from the send to idle, without tools. */
export const wholeTurn = (product: Product, n: number) => times(n, () => timeTo(product, "say: ok", (event) => event.type === "session.status_idle"));

/** A whole turn with one command in the virtual sandbox, in a session whose sandbox is warm. */
export async function warmToolTurn(product: Product, n: number): Promise<readonly number[]> {
  const session = await product.newSession();
  return times(n, async () => {
    const stream = await openStream(product, session);
    const started = performance.now();
    await product.client.beta.sessions.events.send(session, say('call bash: {"command":"true"}\nsay: ok'));
    for await (const event of stream.events) if (event.type === "session.status_idle") break;
    stream.close();
    return performance.now() - started;
  });
}

/** The same model called directly by the official SDK: to its first piece of text. */
export function directFirstToken(product: Product, n: number, script: string): Promise<readonly number[]> {
  const direct = new Anthropic({ apiKey: "bench-model-key", baseURL: product.modelUrl, maxRetries: 0 });
  return times(n, async () => {
    const started = performance.now();
    const stream = await direct.messages.create({
      model: "scripted-model",
      max_tokens: 1024,
      stream: true,
      messages: [{ role: "user", content: script }],
    });
    for await (const event of stream) if (event.type === "content_block_delta") break;
    const took = performance.now() - started;
    stream.controller.abort();
    return took;
  });
}

/** One turn in a session: all events from the send to idle. */
export async function turnIn(product: Product, session: string, message: ReturnType<typeof say>): Promise<readonly { type: string }[]> {
  const stream = await openStream(product, session);
  const seen: { type: string }[] = [];
  await product.client.beta.sessions.events.send(session, message);
  for await (const event of stream.events) {
    seen.push(event);
    if (event.type === "session.status_idle") break;
  }
  stream.close();
  return seen;
}

/** So many new sessions at once, each doing so many turns one after the other. */
export async function wholeTurns(product: Product, sessions: number, turns: number): Promise<void> {
  const ids = await Promise.all(Array.from({ length: sessions }, () => product.newSession()));
  await Promise.all(
    ids.map(async (session) => {
      for (let turn = 0; turn < turns; turn += 1) await turnIn(product, session, say("say: ok"));
    }),
  );
}

/** Turns a second with `sessions` at once, each doing `turns` one after the other. */
export async function turnsPerSecond(product: Product, sessions: number, turns: number): Promise<number> {
  const ids = await Promise.all(Array.from({ length: sessions }, () => product.newSession()));
  const started = performance.now();
  await Promise.all(
    ids.map(async (session) => {
      const stream = await openStream(product, session);
      const events = stream.events[Symbol.asyncIterator]();
      for (let i = 0; i < turns; i += 1) {
        await product.client.beta.sessions.events.send(session, say("say: ok"));
        for (let next = await events.next(); !next.done && next.value.type !== "session.status_idle"; next = await events.next());
      }
      stream.close();
    }),
  );
  return (sessions * turns) / ((performance.now() - started) / 1000);
}

async function idle(product: Product, session: string): Promise<void> {
  for (let i = 0; i < 2_000; i += 1) {
    if ((await product.client.beta.sessions.retrieve(session)).status === "idle") return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error(`Session ${session} did not become idle.`);
}
