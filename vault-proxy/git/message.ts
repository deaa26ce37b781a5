// A request of git and its answer on their way through (R2 R3 R5 of route.ts): which headers go on, how much may pass, what a host's "no" becomes.

import type { IncomingMessage } from "node:http";
import type { Dispatcher } from "undici";
import { isEncoded } from "../inject.ts";
import type { Mask } from "../masks.ts";
import type { Repository } from "./repositories.ts";
import { GitDenied, type GitDeniedCode } from "./says.ts";

/** How long either side may say nothing. */
export const IDLE_MS = 300_000;
/** What a fetch asks for; and a pushed pack. */
const ASK_BYTES_MAX = 64 * 1024 * 1024;
const PUSH_BYTES_MAX = 16 * 1024 ** 3;
/** Of a host's own words about an error. */
const WORDS_BYTES_MAX = 8_192;
const WORDS_CHARS_MAX = 300;

export const SERVICES = ["git-upload-pack", "git-receive-pack"] as const;
export type Service = (typeof SERVICES)[number];

/** R3 */
export function headersOf(
  { headers: given }: IncomingMessage,
  service: Service,
  isAdvertisement: boolean,
  token: string | null,
): Record<string, string> {
  const { "git-protocol": protocol, "user-agent": agent, "content-encoding": encoding, "content-length": length } = given;
  const headers: Record<string, string> = {
    "user-agent": agent !== undefined && /^git\/[\w.+ ()-]{1,100}$/.test(agent) ? agent : "git/2",
    accept: isAdvertisement ? "*/*" : `application/x-${service}-result`,
    "accept-encoding": "identity",
  };
  if (typeof protocol === "string" && /^version=[0-9](?::[\w=-]{1,60})*$/.test(protocol)) headers["git-protocol"] = protocol;
  if (token !== null) headers.authorization = `Basic ${Buffer.from(`x-access-token:${token}`).toString("base64")}`;
  if (isAdvertisement) return headers;
  headers["content-type"] = `application/x-${service}-request`;
  if (encoding !== undefined && encoding !== "gzip" && encoding !== "identity") throw new GitDenied("encoded");
  if (encoding === "gzip") headers["content-encoding"] = "gzip";
  if (length !== undefined) headers["content-length"] = length;
  return headers;
}

/** The caller's body as it comes; silence and excess end it. */
export async function* counted(req: IncomingMessage, service: Service, signal: AbortSignal, count: (bytes: number) => void): AsyncGenerator<Buffer> {
  const bytesMax = service === "git-upload-pack" ? ASK_BYTES_MAX : PUSH_BYTES_MAX;
  let bytes = 0;
  const idle = setTimeout(() => req.destroy(new GitDenied("silent")), IDLE_MS);
  try {
    for await (const piece of req.iterator({ destroyOnReturn: false })) {
      signal.throwIfAborted();
      idle.refresh();
      bytes += piece.length;
      count(bytes);
      if (bytes > bytesMax) throw new GitDenied("too_large");
      yield piece;
    }
  } finally {
    clearTimeout(idle);
  }
}

/** The path that a renamed repository has now, on the same origin; null: it goes elsewhere. R2 */
export function movedTo(location: string | string[] | undefined, from: string, service: Service): string | null {
  if (typeof location !== "string" || !URL.canParse(location, from)) return null;
  const { origin, pathname, search, username, password } = new URL(location, from);
  const base = /^((?:\/[0-9A-Za-z._~-]{1,100}){1,12})\/info\/refs$/.exec(pathname)?.[1];
  const isSame = origin === new URL(from).origin && search === `?service=${service}` && username === "" && password === "";
  return isSame && base !== undefined ? base : null;
}

export function codeOf(status: number, { token }: Repository): GitDeniedCode {
  if (status === 401) return token === null ? "token_missing" : "token_refused";
  if (status === 403) return "forbidden";
  if (status === 404 || status === 410) return "not_found";
  return status === 413 ? "too_large" : "host_failed";
}

/** What the host says of an error, if that is a short plain text. */
export async function wordsOf({ statusCode, headers, body }: Dispatcher.ResponseData, mask: Mask | null): Promise<string> {
  const status = `status ${statusCode}`;
  if (!/^text\/plain\b/.test(String(headers["content-type"])) || isEncoded(headers)) {
    body.destroy();
    return status;
  }
  let held = Buffer.alloc(0);
  try {
    for await (const piece of body) {
      held = Buffer.concat([held, piece]);
      if (held.length > WORDS_BYTES_MAX) break;
    }
  } catch {
    return status; // It broke off; its status says enough.
  }
  const masked = mask?.body();
  const text = masked === undefined ? held : Buffer.concat([masked.push(held), masked.end()]);
  const words = text
    .toString("utf8")
    .replace(/[^ -~]+/g, " ")
    .trim()
    .slice(0, WORDS_CHARS_MAX);
  return words === "" ? status : `${status}: ${words}`;
}
