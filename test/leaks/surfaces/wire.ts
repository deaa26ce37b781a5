// What programs say to each other outside the vault proxy, on every line that there is, by the taps that heard it.

import { createServer } from "node:http";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { ENCODINGS, MARKED, TEXTS } from "../encodings.ts";
import type { Piece } from "../search.ts";
import { Tap, type TapMessage } from "../wire.ts";
import { asText, type Planted, type Scene, type Surface } from "./surface.ts";

const HTTP = (tap: Tap): boolean => !/engine|Redis/.test(tap.name);
const PACKERS = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync } as const;

const read = new WeakMap<Tap, { readonly bytes: number; readonly messages: readonly TapMessage[] }>();

/** Read once, as long as nothing comes. */
function messagesOn({ taps }: Scene): readonly TapMessage[] {
  return taps.filter(HTTP).flatMap((tap) => {
    const known = read.get(tap);
    if (known?.bytes === tap.heard) return known.messages;
    const messages = [...tap.messages()];
    read.set(tap, { bytes: tap.heard, messages });
    return messages;
  });
}

/** Planted by one request and its answer, on a line that is tapped like all others. */
async function exchange(
  scene: Scene,
  asked: { readonly path?: string; readonly headers?: Record<string, string>; readonly body?: Buffer },
  said: { readonly status?: number; readonly headers?: Record<string, string>; readonly pieces?: readonly Buffer[] } = {},
): Promise<void> {
  const server = createServer(async (req, res) => {
    req.resume();
    res.writeHead(said.status ?? 200, said.headers);
    for (const piece of said.pieces ?? []) await new Promise<void>((resolve) => res.write(piece, () => resolve()));
    res.end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no address");
  const tap = await Tap.open({ name: "planted", target: address.port });
  scene.taps.push(tap);
  try {
    const answer = await fetch(`${tap.url}${asked.path ?? "/"}`, {
      method: asked.body === undefined ? "GET" : "POST",
      headers: { connection: "close", ...asked.headers },
      ...(asked.body === undefined ? {} : { body: new Uint8Array(asked.body) }),
    });
    await answer.arrayBuffer().catch(() => null);
  } finally {
    await tap.close();
    server.closeAllConnections();
    server.close();
  }
}

/** A few letters at a time. */
const inPieces = (bytes: Buffer, size = 9): Buffer[] =>
  Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) => bytes.subarray(at * size, (at + 1) * size));

/** Such as may stand in one line. */
const ONE_LINE = TEXTS.filter(({ write }) => !/[\r\n]/.test(write("x".repeat(60)).toString("latin1")));

export const urls: Surface = {
  name: "URLs and status lines",
  encodings: ONE_LINE.filter(({ write }) => /^[\w.~%+/=:&;-]*$/.test(write("x/+=").toString("latin1"))),
  *read(scene) {
    for (const { first } of messagesOn(scene)) yield first;
  },
  async plant(scene, planted) {
    for (const { bytes } of planted) await exchange(scene, { path: `/?planted=${bytes.toString("latin1")}` });
  },
};

export const headers: Surface = {
  name: "HTTP headers",
  encodings: ONE_LINE,
  *read(scene) {
    for (const each of messagesOn(scene)) yield each.headers;
  },
  async plant(scene, planted) {
    for (const [at, { bytes }] of planted.entries()) {
      const named = { "x-planted": bytes.toString("latin1") };
      await exchange(scene, at % 2 === 0 ? { headers: named } : {}, at % 2 === 0 ? {} : { headers: named });
    }
  },
};

/** In pieces, packed by the connection, and as they are. */
export const bodies: Surface = {
  name: "HTTP bodies",
  encodings: ENCODINGS,
  *read(scene) {
    for (const each of messagesOn(scene)) yield* each.bodies;
  },
  async plant(scene, planted) {
    const ways = [...Object.keys(PACKERS), "pieces", "asked"] as const;
    for (const [at, { bytes }] of planted.entries()) {
      const way = ways[at % ways.length];
      if (way === "asked") await exchange(scene, { body: bytes });
      else if (way === "pieces") await exchange(scene, {}, { pieces: inPieces(bytes) });
      else {
        const encoding = way as keyof typeof PACKERS;
        await exchange(scene, {}, { headers: { "content-encoding": encoding }, pieces: inPieces(PACKERS[encoding](bytes)) });
      }
    }
  },
};

/** A text comes a few letters an event, as previews do. */
export const streams: Surface = {
  name: "event streams",
  encodings: TEXTS,
  *read(scene) {
    for (const { bodies: all, isStream } of messagesOn(scene)) if (isStream) yield* all;
  },
  async plant(scene, planted) {
    const events = planted.flatMap(({ bytes }) => [...inPieces(bytes, 16).map((piece) => piece.toString("latin1")), "\n\n"]);
    const body = events.map((text) => `event: delta\ndata: ${JSON.stringify({ delta: { text } })}\n\n`).join("");
    await exchange(scene, {}, { headers: { "content-type": "text/event-stream" }, pieces: inPieces(Buffer.from(body), 50) });
  },
};

const isJsonRpc = ({ bytes }: Piece): boolean => bytes.includes('"jsonrpc"');
const rpc = (more: object): Buffer => Buffer.from(JSON.stringify({ jsonrpc: "2.0", id: 1, ...more }));

export const mcp: Surface = {
  name: "MCP messages",
  encodings: TEXTS,
  *read(scene) {
    for (const { bodies: all } of messagesOn(scene)) yield* all.filter(isJsonRpc);
  },
  async plant(scene, planted) {
    for (const [at, { bytes }] of planted.entries()) {
      const text = bytes.toString("latin1");
      const answer = at % 2 === 0 ? { result: { content: [{ type: "text", text }] } } : { error: { code: -32_000, message: text } };
      await exchange(scene, { body: rpc({ method: "tools/call" }) }, { headers: { "content-type": "application/json" }, pieces: [rpc(answer)] });
    }
  },
};

/** Answers that say no, and the errors of sessions (the session log holds those). */
export const errors: Surface = {
  name: "errors",
  encodings: TEXTS,
  *read(scene) {
    for (const { first, bodies: all } of messagesOn(scene)) if (/^HTTP\/1\.1 [45]/.test(first.bytes.toString("latin1"))) yield* all;
  },
  async plant(scene, planted) {
    const body = JSON.stringify({ type: "error", error: { type: "api_error", message: asText(planted) } });
    await exchange(scene, {}, { status: 500, headers: { "content-type": "application/json" }, pieces: [Buffer.from(body)] });
  },
};

/** Everything that was heard, byte by byte: what was no HTTP, too. */
export const lines: Surface = {
  name: "lines, as bytes",
  encodings: MARKED,
  *read({ taps }) {
    for (const tap of taps.filter(HTTP)) yield* tap.bytes();
  },
  plant: (scene, planted: readonly Planted[]) => exchange(scene, {}, { pieces: planted.map(({ bytes }) => bytes) }),
};
