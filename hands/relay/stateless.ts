// Children that speak the stateless era: a request goes to the child as it is, whoever sent the one before.

import type { ServerResponse } from "node:http";
import type { ConfiguredServer } from "../servers/configured.ts";
import { type Envelope, errorOf, METHOD_NOT_FOUND, REFUSED } from "./envelope.ts";
import type { Link, Times } from "./link.ts";
import { Reply } from "./reply.ts";
import { EventStream } from "./stream.ts";

const LINKS_MAX = 128;

type CommandServer = Extract<ConfiguredServer, { type: "command" }>;

interface Served {
  readonly name: string;
  readonly server: CommandServer;
  readonly owner: string;
  readonly message: Envelope;
  readonly times: Times;
}

export class StatelessLinks {
  readonly #start: (name: string, server: CommandServer) => Link;
  readonly #links = new Map<string, { readonly link: Link; usedAt: number }>();

  constructor(start: (name: string, server: CommandServer) => Link) {
    this.#start = start;
  }

  async serve(response: ServerResponse, { name, server, owner, message, times }: Served): Promise<void> {
    const { id, method } = message;
    const key = `${name}\0${owner}`;
    const found = this.#links.get(key);
    if (!found && this.#links.size >= LINKS_MAX) {
      response.writeHead(503, { "content-type": "application/json" });
      return void response.end(JSON.stringify(errorOf(id ?? null, REFUSED, "The hand host has as many servers as it can hold.")));
    }
    const used = found ?? (await this.#open(key, name, server));
    used.usedAt = Date.now();
    if (id === undefined || method === undefined) {
      if (method !== undefined && method !== "notifications/cancelled") used.link.send(message);
      return void response.writeHead(202, { "content-length": 0 }).end();
    }
    // Its client left while the server started: that calls it off.
    if (response.destroyed) return;
    // Ids of this era are a client's own: two clients may use the same one at once.
    const owned = {};
    response.once("close", () => used.link.cancel(owned, id, { reason: "the client closed the request" }));
    used.link.request(owned, { ...message, id }, new Reply(response, new EventStream("s"), { isPrimed: false }), times);
  }

  sweep(before: number): void {
    for (const [key, { link, usedAt }] of [...this.#links]) {
      if (link.isBusy || usedAt > before) continue;
      this.#links.delete(key);
      void link.close();
    }
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#links.values()].map(({ link }) => link.close()));
    this.#links.clear();
  }

  async #open(key: string, name: string, server: CommandServer) {
    const link = this.#start(name, server);
    const used = { link, usedAt: Date.now() };
    this.#links.set(key, used);
    await link.start({
      // A server of this era asks nothing by itself.
      message: ({ id, method }) => {
        if (id !== undefined && method !== undefined) link.send({ ...errorOf(id, METHOD_NOT_FOUND, "There is no such method."), id });
      },
      ended: () => {
        if (this.#links.get(key) === used) this.#links.delete(key);
      },
    });
    return used;
  }
}
