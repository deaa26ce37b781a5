// Which servers a credential may be sent to at all.
//
//   Q1  A credential leaves by TLS only, and to no internal address, but for the hosts that the operator allowed by name.

/** A host as the operator writes it: `name`, or `name:port`. */
export class Reach {
  readonly #allowed: ReadonlySet<string>;

  constructor(allowed: readonly string[]) {
    this.#allowed = new Set(allowed.map((host) => host.toLowerCase()));
  }

  /** The operator allowed this host, whatever its address and scheme. */
  isAllowed({ hostname, host }: URL): boolean {
    return this.#allowed.has(hostname) || this.#allowed.has(host);
  }

  /** Why a credential can't be bound to this address; null: it can. Q1 */
  refusesToBind(url: URL): string | null {
    return url.protocol === "https:" || this.isAllowed(url)
      ? null
      : "must begin with https:// (the operator can allow a host by MANYHANDS_INTERNAL_HOSTS)";
  }
}
