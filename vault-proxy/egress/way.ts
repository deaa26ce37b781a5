// The way to a place: a connection to an address that was looked at.
//
//   W1  A name is resolved once, at the connection; every address that it has must be one of the internet's, and what was checked is what is connected
//       to. Internal addresses (loopback, private, link-local and so the metadata services) are for places that the operator listed in
//       MANYHANDS_EGRESS_INTERNAL_HOSTS.
//   W2  TLS is to the host that was asked for: its certificate is checked, whatever name a caller wrote elsewhere.

import { lookup as systemLookup } from "node:dns";
import { connect, isIP, type LookupFunction, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { isInternal } from "../address.ts";
import type { Reach } from "../reach.ts";
import type { Place } from "./place.ts";
import { Denied } from "./says.ts";

const CONNECT_MS = 10_000;

export interface Resolved {
  readonly address: string;
  readonly family: number;
}
/** Every address of a name; for tests another one than the system's. */
export type Lookup = (host: string) => Promise<readonly Resolved[]>;

export class Way {
  readonly #reach: Reach;
  readonly #lookup: Lookup;

  constructor(reach: Reach, lookup: Lookup = resolve) {
    this.#reach = reach;
    this.#lookup = lookup;
  }

  /** The operator lets hands reach it at an internal address, and speak plainly to it. */
  isOperators(place: Place): boolean {
    return this.#reach.isAllowed(new URL(`http://${place.text}/`));
  }

  /** A connection, half-open like its ends want it. Throws `Denied`. W1 */
  async open(place: Place, signal: AbortSignal): Promise<Socket> {
    const deadline = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_MS)]);
    const addresses = await this.#addresses(place, deadline);
    const socket = connect({
      host: place.host,
      port: place.port,
      allowHalfOpen: true,
      autoSelectFamily: addresses.length > 1,
      lookup: fixed(addresses),
    });
    return await settled(socket, "connect", place, deadline);
  }

  /** W2 */
  async openTls(place: Place, signal: AbortSignal): Promise<TLSSocket> {
    const socket = await this.open(place, signal);
    const deadline = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_MS)]);
    const isAddress = isIP(place.host) !== 0;
    const secure = connectTls({ socket, host: place.host, ...(isAddress ? {} : { servername: place.host }), ALPNProtocols: ["http/1.1"] });
    return await settled(secure, "secureConnect", place, deadline);
  }

  async #addresses(place: Place, signal: AbortSignal): Promise<readonly Resolved[]> {
    const family = isIP(place.host);
    const addresses = family === 0 ? await this.#resolved(place, signal) : [{ address: place.host, family }];
    if (!this.isOperators(place) && addresses.some(({ address }) => isInternal(address))) throw new Denied("internal", place);
    return addresses;
  }

  async #resolved(place: Place, signal: AbortSignal): Promise<readonly Resolved[]> {
    let off = () => {};
    const late = new Promise<never>((_, reject) => {
      const onAbort = () => reject(new Denied("silent", place));
      signal.addEventListener("abort", onAbort, { once: true });
      off = () => signal.removeEventListener("abort", onAbort);
    });
    try {
      const addresses = await Promise.race([this.#lookup(place.host), late]);
      if (addresses.length === 0) throw new Denied("unknown_name", place);
      return addresses;
    } catch (error) {
      throw error instanceof Denied ? error : new Denied("unknown_name", place, codeOf(error));
    } finally {
      off();
    }
  }
}

const resolve: Lookup = (host) =>
  new Promise((done, failed) => systemLookup(host, { all: true }, (error, addresses) => (error ? failed(error) : done(addresses))));

/** Gives what was checked, whatever is asked. W1 */
function fixed(addresses: readonly Resolved[]): LookupFunction {
  const [first] = addresses;
  return (_host, options, callback) => {
    if (first === undefined) callback(new Error("no address"), "", 0);
    else if (options.all === true) callback(null, [...addresses]);
    else callback(null, first.address, first.family);
  };
}

function settled<T extends Socket>(socket: T, event: "connect" | "secureConnect", place: Place, signal: AbortSignal): Promise<T> {
  return new Promise((done, failed) => {
    const end = (error: Denied | null) => {
      signal.removeEventListener("abort", onAbort);
      socket.off(event, onReady);
      socket.off("close", onClose);
      socket.off("error", onError);
      // Whoever takes it hears of its errors; until then nobody does.
      socket.on("error", () => {});
      if (error === null) return done(socket);
      socket.destroy();
      failed(error);
    };
    const onReady = () => end(null);
    const onClose = () => end(new Denied("unreachable", place, "closed"));
    const onAbort = () => end(new Denied("silent", place));
    const onError = (error: Error) => end(new Denied(event === "secureConnect" ? "untrusted" : "unreachable", place, codeOf(error)));
    signal.addEventListener("abort", onAbort, { once: true });
    socket.once(event, onReady);
    socket.once("close", onClose);
    socket.once("error", onError);
    if (signal.aborted) onAbort();
  });
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "unknown";
}
