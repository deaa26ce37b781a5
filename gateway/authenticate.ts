// Who calls: one of the API keys of this installation, as a bearer or in `x-api-key` (contract §1.2).
//
//   U1  Keys are compared whole, at one length, and in constant time; neither a key nor its hash is logged or answered.

import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { Refusal } from "../session-store/refusal.ts";

/** What `anthropic-version` may say; there is no difference between them here. */
export const API_VERSIONS: ReadonlySet<string> = new Set(["2026-10-21", "2023-06-01"]);

/** Longer keys have more. */
const ROOM_BYTES = 256;

/** The only workspace until keys have one of their own. */
export const WORKSPACE = "default";

export interface Principal {
  readonly workspace: string;
  /** A stable, secret-free name of the key: what ids and digests are made from. */
  readonly name: string;
}

export type Authenticate = (headers: IncomingHttpHeaders) => Principal;

export function makeAuthenticate(apiKeys: readonly string[]): Authenticate {
  const room = Math.max(ROOM_BYTES, ...apiKeys.map((key) => Buffer.byteLength(key)));
  const known = apiKeys.map((key) => ({ key: padded(key, Buffer.alloc(room)), principal: { workspace: WORKSPACE, name: nameOf(key) } }));
  const given = Buffer.alloc(room);
  return (headers) => {
    const text = keyOf(headers);
    padded(text, given);
    let found: Principal | null = null;
    for (const { key, principal } of known) if (timingSafeEqual(key, given)) found = principal;
    given.fill(0);
    if (!found || Buffer.byteLength(text) > room) throw new Refusal("unauthenticated");
    return found;
  };
}

function keyOf(headers: IncomingHttpHeaders): string {
  const { authorization } = headers;
  const apiKey = headers["x-api-key"];
  if (Array.isArray(apiKey)) throw new Refusal("unauthenticated");
  const bearer = authorization === undefined ? undefined : /^bearer +(\S+) *$/i.exec(authorization)?.[1];
  if (authorization !== undefined && bearer === undefined) throw new Refusal("unauthenticated", "The authorization header holds no bearer key.");
  if (bearer !== undefined && apiKey !== undefined && bearer !== apiKey)
    throw new Refusal("unauthenticated", "The authorization and x-api-key headers hold different keys.");
  const key = bearer ?? apiKey;
  if (!key) throw new Refusal("unauthenticated", "No API key was given.");
  return key;
}

/** No header holds the byte that fills the room: what is equal with it is equal without it. */
function padded(key: string, room: Buffer): Buffer {
  room.fill(0).write(key);
  return room;
}

const nameOf = (key: string): string => hashOf(hashOf(key)).toString("hex", 0, 12);
const hashOf = (text: string | Buffer): Buffer => createHash("sha256").update(text).digest();
