// Which era a child speaks: one is started, shaken hands with, and ended.

import type { ConfiguredServer } from "../servers/configured.ts";
import { CONNECT_MS } from "../servers/limits.ts";
import type { Envelope } from "./envelope.ts";
import type { Link } from "./link.ts";

export const HANDSHAKE_VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] as const;
const HELLO = {
  jsonrpc: "2.0",
  id: 0,
  method: "initialize",
  params: { protocolVersion: HANDSHAKE_VERSIONS[0], capabilities: {}, clientInfo: { name: "manyhands", version: "1" } },
} as const;
/** A program that was updated may speak another. */
const BELIEVED_MS = 600_000;
/** One that said nothing, or ended, may have been slow for once: it is asked again soon, though not by everyone who comes. */
const DOUBTED_MS = 5_000;

type CommandServer = Extract<ConfiguredServer, { type: "command" }>;

export class Eras {
  readonly #start: (name: string, server: CommandServer) => Link;
  readonly #known = new Map<string, { readonly era: Promise<"handshake" | "stateless">; until: number }>();

  constructor(start: (name: string, server: CommandServer) => Link) {
    this.#start = start;
  }

  of(name: string, server: CommandServer): Promise<"handshake" | "stateless"> {
    const known = this.#known.get(name);
    if (known && known.until > Date.now()) return known.era;
    const doubt = () => {
      asked.until = Date.now() + DOUBTED_MS;
    };
    const asked = { era: this.#ask(name, server, doubt), until: Date.now() + BELIEVED_MS };
    this.#known.set(name, asked);
    return asked.era;
  }

  async #ask(name: string, server: CommandServer, doubt: () => void): Promise<"handshake" | "stateless"> {
    const link = this.#start(name, server);
    try {
      const answer = await shake(link, {});
      // Silence and a crash say nothing of another era: the handshake's own errors will.
      if ("isOurs" in answer) doubt();
      return "error" in answer && !("isOurs" in answer) ? "stateless" : "handshake";
    } finally {
      void link.close();
    }
  }
}

/** The answer to `initialize`; with `isOurs` when there was none. */
export async function shake(link: Link, owner: object, hello: Envelope & { readonly id: string | number } = HELLO): Promise<object> {
  const answer = new Promise<object>((resolve) => {
    const silent = (reason: string) => resolve({ error: { code: -32_000, message: reason }, isOurs: true });
    const late = setTimeout(() => silent("The server did not answer `initialize` in time."), CONNECT_MS);
    void link.start({
      message: () => {},
      ended: (says) => {
        clearTimeout(late);
        silent(`The server ended: ${says}.`);
      },
    });
    link.request(owner, hello, {
      send: () => {},
      drop: () => {},
      end: (message) => {
        clearTimeout(late);
        // An answer that the link gives for a child that ended is no word of the server.
        if (link.end === null) resolve(message);
        else silent(`The server ended: ${link.end}.`);
      },
    });
  });
  return answer;
}
