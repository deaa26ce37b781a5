// The MCP servers that sessions of this host use: how each is reached, and what is left of earlier hosts' children.

import { preloadSchemas } from "@modelcontextprotocol/client";
import type { Logger } from "pino";
import { z } from "zod";
import type { ServerWanted } from "../hand.ts";
import type { HandRow } from "../ledger.ts";
import { ArgumentChecks } from "./argument-checks.ts";
import { TIMES, type Times } from "./call-limits.ts";
import { Children } from "./children.ts";
import type { ConfiguredServers } from "./configured.ts";
import type { Where } from "./connection.ts";
import { ServerHand } from "./hand.ts";
import { CONNECT_MS } from "./limits.ts";
import { Reach } from "./reach.ts";

/** In a ledger's row where other hands have their sandbox's driver. */
export const SERVER_DRIVER = "mcp";

export interface ServerSettings {
  /** Hosts of internal addresses that may be reached: "host", "host:port" or "*". */
  readonly internalHosts: readonly string[];
  readonly times: Times;
  readonly configured: ConfiguredServers;
  /** The built file of argument-thread.ts, where this code does not run from beside it. */
  readonly argumentThread?: URL;
  /** What children get of this process's environment. */
  readonly environment: Readonly<Record<string, string>>;
}

export const SERVER_SETTINGS: ServerSettings = {
  internalHosts: [],
  times: { connectMs: CONNECT_MS, ...TIMES },
  configured: new Map(),
  environment: {},
};

const Wanted = z.object({
  name: z.string(),
  transport: z.union([z.object({ type: z.literal("url"), url: z.string() }), z.object({ type: z.literal("configured"), server: z.string() })]),
});

/** A server as a ledger's row holds it: the same one is the same text. */
export const textOf = ({ name, transport }: ServerWanted): string =>
  JSON.stringify({
    name,
    transport: transport.type === "url" ? { type: "url", url: transport.url } : { type: "configured", server: transport.server },
  });

export class ServerHands {
  readonly #settings: ServerSettings;
  readonly #children: Children;
  readonly #reach: Reach;
  readonly #checks: ArgumentChecks;
  readonly #log: Logger;

  constructor(settings: ServerSettings, host: string, log: Logger) {
    this.#settings = settings;
    this.#children = new Children(host, settings.environment);
    this.#reach = new Reach(settings.internalHosts, settings.times.connectMs);
    this.#checks = new ArgumentChecks(log, settings.argumentThread);
    this.#log = log;
  }

  /** Ends the children of a host before this one. */
  async start(): Promise<void> {
    // The client reads by schemas that it makes at first use: the first session is not to wait for that.
    preloadSchemas();
    const ended = await this.#children.sweep();
    if (ended > 0) this.#log.info({ processes: ended }, "server.orphans_ended");
  }

  open(row: HandRow & { readonly server: string }, keep: (toolUseId: string, text: string) => Promise<string>): ServerHand {
    const wanted: ServerWanted = Wanted.parse(JSON.parse(row.server));
    return new ServerHand({
      name: wanted.name,
      hand: row.hand,
      where: this.#whereOf(wanted, row.hand),
      times: this.#settings.times,
      log: this.#log,
      checks: this.#checks,
      keep,
    });
  }

  async stop(): Promise<void> {
    await this.#checks.stop();
    await this.#reach.close();
  }

  #whereOf({ transport }: ServerWanted, hand: string): Where | null {
    if (transport.type === "url") return { type: "url", url: new URL(transport.url), reach: this.#reach };
    const server = this.#settings.configured.get(transport.server);
    if (server === undefined) return null;
    if (server.type === "url") return { type: "url", url: server.url, reach: this.#reach };
    const { command } = server;
    return { type: "command", secrets: Object.values(command.env), start: () => this.#children.start(hand, command) };
  }
}
