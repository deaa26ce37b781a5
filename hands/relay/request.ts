// What a request to the relay holds: its body, the name in its path, and who listens.

import type { IncomingHttpHeaders, IncomingMessage } from "node:http";

const BODY_BYTES_MAX = 32 * 1024 * 1024;
const LISTENER = "x-manyhands-listener";
const CLIENT = "client";

/** Says of a listening stream that it is there for as long as the client is. */
export const CLIENT_LISTENS: Readonly<Record<string, string>> = { [LISTENER]: CLIENT };

export const isClientListening = (headers: IncomingHttpHeaders): boolean => headers[LISTENER] === CLIENT;

/** The text of a request; null: it is too long. */
export async function bodyOf(request: IncomingMessage): Promise<string | null> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    const piece: Buffer = chunk;
    bytes += piece.length;
    if (bytes > BODY_BYTES_MAX) return null;
    chunks.push(piece);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** A name as it stands in a path; null: none is written so. */
export function nameIn(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    return null; // Its escapes are none.
  }
}
