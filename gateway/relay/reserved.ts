// The keys of `_meta` that belong to the protocol (`io.modelcontextprotocol/…`), and who may say them.
//
//   K1  What only a client says of itself never comes from a hand, and what only a server says never comes from a client: it is taken out.
//   K2  A client of the handshake era says these things when it initializes: in its later messages they would be another era's, and are taken out.
//   K3  The number of a subscription is the id of the request that opened it; any other is taken out.
//   K4  Every other key passes byte for byte: trace context, vendors' keys, and those of extensions that this program has never heard of.

import { isRecord, type RpcId } from "../mcp/rpc.ts";
import { type Edit, isObject, type Member, memberOf, membersOf, without } from "./spans.ts";
import type { Era } from "./upstream.ts";

const PREFIX = "io.modelcontextprotocol/";
const CLIENTS: ReadonlySet<string> = new Set(["protocolVersion", "clientInfo", "clientCapabilities", "logLevel"].map((name) => PREFIX + name));
const SERVERS: ReadonlySet<string> = new Set(["serverInfo", "subscriptionId"].map((name) => PREFIX + name));
const SUBSCRIPTION_ID = `${PREFIX}subscriptionId`;

const PREFIX_BYTES = Buffer.from(PREFIX);
const BACKSLASH = 0x5c;

/** Cheap, for the many messages that have none. An escaped spelling of the prefix is looked for, too. */
export const mayHoldReserved = (text: Buffer): boolean => text.includes(BACKSLASH) || text.includes(PREFIX_BYTES);

/** Does a client say what is not its to say? Of its message, as parsed, in which no name is there twice. K1 K2 */
export function isForged(message: unknown, era: Era): boolean {
  const meta = memberIn(memberIn(message, "params"), "_meta");
  for (const name in isRecord(meta) ? meta : {}) if (isNotClients(name, era)) return true;
  return false;
}

/** Takes that out. */
export function editsFromClient(text: Buffer, era: Era): Edit[] {
  return editsOf(text, memberOf(membersOf(text), "params"), (name) => isNotClients(name, era));
}

const isNotClients = (name: string, era: Era): boolean => SERVERS.has(name) || (era === "handshake" && CLIENTS.has(name));
const memberIn = (value: unknown, name: string): unknown => (isRecord(value) ? value[name] : undefined);

/** Takes out of a hand's message what is not its to say. `holder`: its `params` or `result`; `subscription`: its id, null where there is none. */
export function editsFromHand(text: Buffer, holder: Member | undefined, subscription: RpcId | null): Edit[] {
  return editsOf(text, holder, (name, value) => CLIENTS.has(name) || (name === SUBSCRIPTION_ID && !means(value, subscription)));
}

function editsOf(text: Buffer, holder: Member | undefined, isForged: (name: string, value: string) => boolean): Edit[] {
  if (!holder || !isObject(text, holder)) return [];
  const edits: Edit[] = [];
  for (const meta of membersOf(text, holder.start)) {
    if (meta.name !== "_meta" || !meta.isWhole || !isObject(text, meta)) continue;
    const keys = membersOf(text, meta.start);
    edits.push(...without(keys, (_, index) => isForgedKey(text, keys[index], isForged)));
  }
  return edits;
}

function isForgedKey(text: Buffer, key: Member | undefined, isForged: (name: string, value: string) => boolean): boolean {
  return key?.name.startsWith(PREFIX) === true && isForged(key.name, text.toString("utf8", key.start, key.end));
}

/** An id may be spelt in more than one way. */
function means(json: string, id: RpcId | null): boolean {
  try {
    return id !== null && JSON.parse(json) === id;
  } catch {
    return false;
  }
}
