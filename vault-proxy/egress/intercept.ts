// TLS to a host for which the session has a credential: it ends here, under a certificate of this installation's authority, and begins anew towards the host.
//
//   N1  The name in the handshake must be the host of the CONNECT, and so must every Host header: what is judged, what is spoken to and what a
//       credential is for are one host.
//   N2  HTTP/1.1 alone is spoken inside. Upgrades, TRACE and other CONNECTs are refused.
//   N3  What does not begin like TLS is none: it goes on as a tunnel, unread, and no credential is in it.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { isIP } from "node:net";
import type { Duplex } from "node:stream";
import { type SecureContext, TLSSocket } from "node:tls";
import { inTurn, isFramedOddly } from "../framing.ts";
import { valuesOf } from "./headers.ts";
import { firstBytes } from "./line.ts";
import { type Place, placeOf } from "./place.ts";
import { Denied, deny } from "./says.ts";

const HANDSHAKE_MS = 10_000;
const IDLE_MS = 60_000;
const HEADER_BYTES_MAX = 65_536;
const TLS_HANDSHAKE = 0x16;

type Handle = (req: IncomingMessage, res: ServerResponse, path: string) => Promise<void>;

/** Whether a connection begins like TLS; what was read of it goes back. Null: nothing came in time. N3 */
export async function isTls(socket: Duplex): Promise<boolean | null> {
  const first = await firstBytes(socket, (held) => (held.length === 0 ? null : 1), HANDSHAKE_MS);
  if (first === null) return null;
  socket.unshift(first);
  return first[0] === TLS_HANDSHAKE;
}

export class Interceptor {
  readonly #inside: Server;
  readonly #open = new WeakMap<Duplex, { readonly place: Place; readonly handle: Handle }>();

  constructor() {
    this.#inside = createServer(
      { keepAliveTimeout: IDLE_MS, maxHeaderSize: HEADER_BYTES_MAX },
      inTurn((req, res) => void this.#request(req, res)),
    );
    this.#inside.on("connect", (_req: IncomingMessage, socket: Duplex) => socket.destroy());
  }

  /** Speaks TLS with the hand in the host's place; resolves when that connection is over. `Denied`: no handshake came about. N1 */
  async take(socket: Duplex, place: Place, context: SecureContext, handle: Handle): Promise<void> {
    const wanted = isIP(place.host) === 0 ? place.host : null;
    const secure = new TLSSocket(socket, {
      isServer: true,
      secureContext: context,
      ALPNProtocols: ["http/1.1"],
      SNICallback: (name, answer) => (name.toLowerCase() === wanted ? answer(null, context) : answer(new Error("another name"))),
    });
    const closed = new Promise<void>((resolve) => secure.once("close", () => resolve()));
    secure.on("error", () => {});
    const isSecure = await new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => end(false), HANDSHAKE_MS);
      const end = (is: boolean): void => {
        clearTimeout(timer);
        resolve(is);
      };
      secure.once("secure", () => end(true));
      secure.once("error", () => end(false));
      secure.once("close", () => end(false));
    });
    const isNamed = wanted === null || ("servername" in secure && secure.servername === wanted);
    if (!isSecure || !isNamed) {
      secure.destroy();
      socket.destroy();
      throw new Denied("no_handshake", place);
    }
    this.#open.set(secure, { place, handle });
    this.#inside.emit("connection", secure);
    await closed;
    socket.destroy();
  }

  async #request(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const open = this.#open.get(req.socket);
    if (open === undefined) return void req.socket.destroy();
    if (isFramedOddly(req)) return void deny(res, new Denied("odd_framing", open.place));
    const { place, handle } = open;
    const hosts = valuesOf(req.rawHeaders, "host").map((value) => placeOf(value, 443));
    const path = req.url ?? "";
    if (hosts.length !== 1 || hosts[0]?.text !== place.text) return void deny(res, new Denied("other_host", place));
    if (!path.startsWith("/")) return void deny(res, new Denied("other_host", place));
    if (req.headers.upgrade !== undefined) return void deny(res, new Denied("no_upgrade", place));
    await handle(req, res, path);
  }
}
