// Which pages and names may reach a door: against web pages that are made to talk to a server on their reader's own machine.
//
//   O1  A foreign `Origin`, also `null`, is refused; none at all is a program and may pass. It holds for every verb.
//   O2  On a loopback address only loopback names, and the public one, are taken as `Host`. With a public address elsewhere, only that and loopback.

import type { IncomingHttpHeaders } from "node:http";

const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);
/** Clients say the same few names again and again: what these mean is read once. */
const KNOWN_MAX = 256;
const KNOWN_CHARS_MAX = 256;
const hostnames = new Map<string, string | null>();
const publics = new Map<string, { readonly hostname: string; readonly origin: string }>();

export interface Reach {
  /** This process listens on loopback alone. */
  readonly isLoopback: boolean;
  /** As configured; null when none is. */
  readonly publicUrl: string | null;
}

/** Null when the request may pass, else what is wrong with it. O1 O2 */
export function refusedReach(headers: IncomingHttpHeaders, { isLoopback, publicUrl }: Reach): string | null {
  const open = publicUrl === null ? null : publicOf(publicUrl);
  const host = hostnameOf(`http://${headers.host ?? ""}`);
  const isKnownHost = host !== null && (LOOPBACK.has(host) || host === open?.hostname);
  if ((isLoopback || open) && !isKnownHost) return "Invalid Host header";
  const { origin } = headers;
  if (origin === undefined) return null;
  const from = hostnameOf(origin);
  const isKnownOrigin = from !== null && (origin === open?.origin || LOOPBACK.has(from));
  return isKnownOrigin ? null : "Invalid Origin header";
}

function hostnameOf(text: string): string | null {
  const known = hostnames.get(text);
  if (known !== undefined) return known;
  const isOrigin = /^https?:\/\/[^/?#@]+$/i.test(text) && URL.canParse(text);
  return keep(hostnames, text, isOrigin ? new URL(text).hostname : null);
}

function publicOf(url: string): { readonly hostname: string; readonly origin: string } {
  const known = publics.get(url);
  if (known) return known;
  const { hostname, origin } = new URL(url);
  return keep(publics, url, { hostname, origin });
}

function keep<T>(known: Map<string, T>, text: string, meaning: T): T {
  if (known.size >= KNOWN_MAX) known.clear();
  if (text.length <= KNOWN_CHARS_MAX) known.set(text, meaning);
  return meaning;
}
