// What a program in a hand is told when it may not go out, or can't: one line that says which door is closed and who has its key. A client of a CONNECT
// often shows nothing but the status line, so the line is there as well.

import type { ServerResponse } from "node:http";
import type { Duplex } from "node:stream";
import type { Place } from "./place.ts";

const SAYS = {
  not_a_place: { status: 400, says: "the address can't be read: a host name, IPv4 or [IPv6] address and a port are taken, and nothing else" },
  not_a_connect: { status: 400, says: "a CONNECT names its host and has no body" },
  odd_framing: { status: 400, says: "a body has a length or comes in chunks, and nothing else" },
  not_a_proxy_request: { status: 400, says: "this is a proxy: ask for http://… in full, or use CONNECT" },
  no_trace: { status: 405, says: "TRACE is not passed on" },
  not_allowed: { status: 403, says: "the environment's networking does not allow this host and port" },
  internal: { status: 403, says: "an internal address, which hands do not reach" },
  other_host: { status: 421, says: "the Host header names another host than the one connected to" },
  no_upgrade: { status: 501, says: "a connection can't be upgraded on its way to a host that has a credential" },
  no_handshake: { status: 502, says: "no TLS handshake came about" },
  encoded: { status: 502, says: "the answer is compressed in a way that can't be looked through for credentials" },
  bad_secret: { status: 502, says: "a credential's value can't stand in a header" },
  unknown_name: { status: 502, says: "the name has no address" },
  unreachable: { status: 502, says: "the host can't be reached" },
  untrusted: { status: 502, says: "the host's TLS can't be trusted" },
  silent: { status: 504, says: "the host did not answer in time" },
  too_many: { status: 503, says: "too many connections of this session are open" },
  ended: { status: 503, says: "the session's grant has ended" },
  no_vault: { status: 503, says: "the session's credentials can't be read now" },
  no_audit: { status: 503, says: "the use of a credential can't be written to the audit, and so it does not happen" },
} as const;

export type DeniedCode = keyof typeof SAYS;

export class Denied extends Error {
  override readonly name = "Denied";
  readonly code: DeniedCode;
  readonly place: Place | null;
  /** The system's code; no content. */
  readonly detail: string;

  constructor(code: DeniedCode, place: Place | null = null, detail = "") {
    super(SAYS[code].says);
    this.code = code;
    this.place = place;
    this.detail = detail;
  }
}

/** In words that a status line can hold. */
const reasonOf = (denied: Denied): string => lineOf(denied).replace(/[^ -~]/g, "?");

const lineOf = ({ message, place, detail }: Denied): string =>
  `${message}${place === null ? "" : ` (${place.text})`}${detail === "" || detail === "unknown" ? "" : ` [${detail}]`}`;

/** How long a caller has to take a last answer and leave. */
const LAST_MS = 2_000;

/** The last words on a bare connection, which ends: what still comes is thrown away, and who does not leave is put out. */
export function last(socket: Duplex, text: string): void {
  const late = setTimeout(() => socket.destroy(), LAST_MS);
  late.unref();
  socket.once("close", () => clearTimeout(late));
  // Unread bytes would hide the caller's leaving, and the connection would stay for good.
  socket.resume();
  socket.end(text);
}

/** Before any answer: a whole one on the bare connection, which ends. */
export function denyConnect(socket: Duplex, denied: Denied): void {
  const body = `manyhands: ${lineOf(denied)}\n`;
  const head = [
    `HTTP/1.1 ${SAYS[denied.code].status} ${reasonOf(denied)}`,
    "content-type: text/plain",
    `content-length: ${Buffer.byteLength(body)}`,
    `x-manyhands-egress: ${denied.code}`,
    "connection: close",
  ];
  last(socket, `${head.join("\r\n")}\r\n\r\n${body}`);
}

/** Gives the status; an answer that has begun is cut, so that it can't be taken for whole. */
export function deny(res: ServerResponse, denied: Denied): number {
  const { status } = SAYS[denied.code];
  if (res.headersSent) {
    res.destroy();
    return res.statusCode;
  }
  const body = `manyhands: ${lineOf(denied)}\n`;
  res.writeHead(status, reasonOf(denied), {
    "content-type": "text/plain",
    "content-length": Buffer.byteLength(body),
    "x-manyhands-egress": denied.code,
    connection: "close",
  });
  res.end(body);
  return status;
}
