// One side of an HTTP/1.1 connection, read as the messages that it holds. Bodies are put together from their chunks and unpacked; of event streams the
// texts of all events are joined as well, since a word may come in pieces.

import { brotliDecompressSync, constants, gunzipSync, inflateSync } from "node:zlib";

interface Message {
  readonly first: Buffer;
  readonly headers: Buffer;
  /** The body in every form in which it is worth a look. */
  readonly bodies: readonly Buffer[];
  readonly isStream: boolean;
}

const HEAD_END = "\r\n\r\n";
const IS_FIRST = /^(?:[A-Z]+ \S+ HTTP\/1\.[01]|HTTP\/1\.[01] \d{3}.*)$/;
const HAS_NO_BODY = /^HTTP\/1\.[01] (?:1\d\d|204|304)/;
const PACKERS: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
  gzip: (bytes) => gunzipSync(bytes, { finishFlush: constants.Z_SYNC_FLUSH }),
  deflate: (bytes) => inflateSync(bytes, { finishFlush: constants.Z_SYNC_FLUSH }),
  br: (bytes) => brotliDecompressSync(bytes, { finishFlush: constants.BROTLI_OPERATION_FLUSH }),
};

/** What is no HTTP (any more) is one last message without a head. */
export function* messagesOf(bytes: Buffer): Generator<Message> {
  let at = 0;
  while (at < bytes.length) {
    const end = bytes.indexOf(HEAD_END, at);
    const head = end < 0 ? "" : bytes.toString("latin1", at, end);
    const line = head.indexOf("\r\n");
    const first = line < 0 ? head : head.slice(0, line);
    if (!IS_FIRST.test(first)) {
      yield { first: Buffer.alloc(0), headers: Buffer.alloc(0), bodies: [bytes.subarray(at)], isStream: false };
      return;
    }
    const headers = line < 0 ? "" : head.slice(line + 2);
    const from = end + HEAD_END.length;
    const { body, next } = bodyAt(bytes, from, first, headers);
    yield {
      first: Buffer.from(first, "latin1"),
      headers: Buffer.from(headers, "latin1"),
      ...formsOf(body, headers),
    };
    at = next;
  }
}

const headerOf = (headers: string, name: string): string => new RegExp(`^${name}:[ \\t]*(.*)$`, "im").exec(headers)?.[1]?.trim().toLowerCase() ?? "";

function bodyAt(bytes: Buffer, from: number, first: string, headers: string): { body: Buffer; next: number } {
  if (HAS_NO_BODY.test(first)) return { body: Buffer.alloc(0), next: from };
  if (headerOf(headers, "transfer-encoding").includes("chunked")) return chunksAt(bytes, from);
  const length = headerOf(headers, "content-length");
  const isRequest = !first.startsWith("HTTP/");
  if (length === "" && isRequest && !first.startsWith("CONNECT ") && headerOf(headers, "upgrade") === "")
    return { body: Buffer.alloc(0), next: from };
  const to = length === "" ? bytes.length : Math.min(bytes.length, from + Number(length));
  return { body: bytes.subarray(from, to), next: to };
}

function chunksAt(bytes: Buffer, from: number): { body: Buffer; next: number } {
  const pieces: Buffer[] = [];
  for (let at = from; ; ) {
    const end = bytes.indexOf("\r\n", at);
    const size = end < 0 ? Number.NaN : Number.parseInt(bytes.toString("latin1", at, end), 16);
    if (Number.isNaN(size)) return { body: Buffer.concat([...pieces, bytes.subarray(at)]), next: bytes.length };
    if (size === 0) {
      const last = bytes.indexOf("\r\n", end + 2);
      return { body: Buffer.concat(pieces), next: last < 0 ? bytes.length : last + 2 };
    }
    pieces.push(bytes.subarray(end + 2, end + 2 + size));
    at = end + 2 + size + 2;
  }
}

function formsOf(body: Buffer, headers: string): { bodies: readonly Buffer[]; isStream: boolean } {
  if (body.length === 0) return { bodies: [], isStream: false };
  const unpacked = attempt(PACKERS[headerOf(headers, "content-encoding")], body);
  const isStream = headerOf(headers, "content-type").startsWith("text/event-stream");
  const bodies = unpacked === null ? [body] : [body, unpacked];
  return { bodies: isStream ? [...bodies, ...joined(unpacked ?? body)] : bodies, isStream };
}

/** The texts of a stream's events by where they stand in an event, each put together. */
function joined(body: Buffer): readonly Buffer[] {
  const texts = new Map<string, string[]>();
  const collect = (value: unknown, path: string): void => {
    if (typeof value === "string") {
      const known = texts.get(path) ?? [];
      known.push(value);
      texts.set(path, known);
    } else if (typeof value === "object" && value !== null) for (const [name, inner] of Object.entries(value)) collect(inner, `${path}.${name}`);
  };
  for (const [, data = ""] of body.toString("utf8").matchAll(/^data: ?(.*)$/gm)) {
    try {
      collect(JSON.parse(data), "");
    } catch {
      collect(data, "");
    }
  }
  return [...texts.values()].filter((all) => all.length > 1).map((all) => Buffer.from(all.join("")));
}

function attempt(open: ((bytes: Buffer) => Buffer) | undefined, bytes: Buffer): Buffer | null {
  if (open === undefined) return null;
  try {
    return open(bytes);
  } catch {
    return null;
  }
}
