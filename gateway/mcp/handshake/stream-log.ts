// The messages of one answer stream, as documents: what a client that lost its connection gets from any node.
//
//   L1  A stored stream is whole: its first messages are there before it is, and each later one is stored in the step that counts it.
//   L2  The node that runs the call says every so often until when it surely lives. When that time is over and the stream has no end, the call is
//       lost, and its client is told that it may have run.

import { z } from "zod";
import type { DocumentWrite } from "../../../session-store/documents.ts";
import { type Topic, topic } from "../../../session-store/ids.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import { WORKSPACE } from "../kept.ts";
import type { RpcId } from "../rpc.ts";

export const STREAM_KIND = "mcp_stream";
const MESSAGE_KIND = "mcp_message";
/** Three signs of life fit in. A store that can't be reached for half a minute, which turns and streams survive, loses no call either. */
export const LIFE_MS = 45_000;
const WRITES_MAX = 50;

const Body = z.object({ session: z.string(), request: z.union([z.string(), z.number()]), count: z.int(), isDone: z.boolean(), until: z.number() });
export type StoredStream = z.infer<typeof Body>;
const Text = z.object({ text: z.string() });

export const streamBell = (stream: string): Topic => topic(stream);
const messageId = (stream: string, n: number) => `${stream}.${String(n).padStart(9, "0")}`;

/** What the node that runs a call writes. L1 L2 */
export class StreamLog {
  readonly #store: SessionStore;
  readonly #stream: string;
  readonly #of: { readonly session: string; readonly request: RpcId };
  #revision = 0;
  #count = 0;

  constructor(store: SessionStore, stream: string, of: { readonly session: string; readonly request: RpcId }) {
    this.#store = store;
    this.#stream = stream;
    this.#of = of;
  }

  /** Appends the messages that follow the stored ones. */
  async append(texts: readonly string[], isDone: boolean): Promise<void> {
    const left = texts.map((text, index): DocumentWrite => {
      return { kind: MESSAGE_KIND, id: messageId(this.#stream, this.#count + index + 1), body: { text }, replaces: 0 };
    });
    while (left.length >= WRITES_MAX) await this.#store.put(WORKSPACE, left.splice(0, WRITES_MAX));
    const body: StoredStream = { ...this.#of, count: this.#count + texts.length, isDone, until: Date.now() + LIFE_MS };
    await this.#store.put(WORKSPACE, [...left, { kind: STREAM_KIND, id: this.#stream, body, replaces: this.#revision }]);
    this.#revision += 1;
    this.#count = body.count;
    this.#store.ring(streamBell(this.#stream));
  }
}

export async function readStream(store: SessionStore, stream: string): Promise<StoredStream | null> {
  const document = await store.get(WORKSPACE, STREAM_KIND, stream);
  return document && Body.parse(document.body);
}

export async function readMessageText(store: SessionStore, stream: string, n: number): Promise<string> {
  const document = await store.get(WORKSPACE, MESSAGE_KIND, messageId(stream, n));
  if (!document) throw new Error("a stored stream lacks a message that it counts");
  return Text.parse(document.body).text;
}

/** The stream and its messages, last first: what is left of one is never taken for a whole one. */
export async function removeStream(store: SessionStore, stream: string, discard: (kind: string, id: string) => Promise<void>): Promise<void> {
  const stored = await readStream(store, stream);
  for (let n = 1; n <= (stored?.count ?? 0); n += 1) await discard(MESSAGE_KIND, messageId(stream, n));
  await discard(STREAM_KIND, stream);
}
