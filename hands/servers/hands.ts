// The MCP servers that sessions of this host use: how each is reached, and what is left of earlier hosts' children.

import { createHash } from "node:crypto";
import { preloadSchemas } from "@modelcontextprotocol/client";
import type { Logger } from "pino";
import { z } from "zod";
import type { Holder, ListAsk, ServerTools } from "../hand.ts";
import type { HandRow } from "../ledger.ts";
import { ServerRelay } from "../relay/door.ts";
import { SseReach } from "../relay/sse.ts";
import type { Runner } from "../runner.ts";
import { ArgumentChecks } from "./argument-checks.ts";
import { TIMES, type Times } from "./call-limits.ts";
import { Children } from "./children.ts";
import type { ConfiguredServers } from "./configured.ts";
import type { Where } from "./connection.ts";
import { type Keep, ServerHand } from "./hand.ts";
import { CONNECT_MS } from "./limits.ts";
import { type Fetch, Reach } from "./reach.ts";
import { SharedHands } from "./shared.ts";
import { HandGrants, VaultWay } from "./vault-way.ts";

/** In a ledger's row where other hands have their sandbox's driver. */
export const SERVER_DRIVER = "mcp";

export interface ServerSettings {
  /** Hosts of internal addresses that may be reached: "host", "host:port" or "*". */
  readonly internalHosts: readonly string[];
  readonly times: Times;
  readonly configured: ConfiguredServers;
  /** The built file of argument-thread.ts, where this code does not run from beside it. */
  readonly argumentThread?: URL;
  /** The vault proxy, for sessions that have vaults; null: there is none. */
  readonly vaultUrl: string | null;
  /** What children get of this process's environment. */
  readonly environment: Readonly<Record<string, string>>;
}

export const SERVER_SETTINGS: ServerSettings = {
  internalHosts: [],
  times: { connectMs: CONNECT_MS, ...TIMES },
  configured: new Map(),
  vaultUrl: null,
  environment: {},
};

const Wanted = z.object({
  name: z.string(),
  transport: z.union([
    z.object({ type: z.literal("url"), url: z.string(), isSse: z.boolean().optional() }),
    z.object({ type: z.literal("configured"), server: z.string() }),
  ]),
  shared: z.string().optional(),
  times: z.object({ connectMs: z.number().optional(), idleMs: z.number().optional(), totalMs: z.number().optional() }).optional(),
});

/** A server as a ledger's row holds it: the same one is the same text. */
export const textOf = ({ name, transport, shared, times }: z.input<typeof Wanted>): string =>
  JSON.stringify({
    name,
    transport:
      transport.type === "url"
        ? { type: "url", url: transport.url, ...(transport.isSse === true ? { isSse: true } : {}) }
        : { type: "configured", server: transport.server },
    shared,
    times: times && { connectMs: times.connectMs, idleMs: times.idleMs, totalMs: times.totalMs },
  });

/** A hand that is an MCP server. */
export interface ServerRunner extends Runner {
  listTools(ask: ListAsk): Promise<ServerTools>;
}
export const isServer = (runner: Runner): runner is ServerRunner => "listTools" in runner;

export class ServerHands {
  /** The servers of the operator's file, over HTTP. */
  readonly relay: ServerRelay;
  readonly #settings: ServerSettings;
  readonly #children: Children;
  readonly #reach: Reach;
  readonly #sse: SseReach;
  readonly #checks: ArgumentChecks;
  readonly #vault: VaultWay | null;
  /** What may be used of vaults, by hand. */
  readonly #grants = new HandGrants();
  readonly #shared = new SharedHands();
  readonly #log: Logger;

  constructor(settings: ServerSettings, host: string, log: Logger) {
    this.#settings = settings;
    this.#children = new Children(host, settings.environment);
    this.#reach = new Reach(settings.internalHosts, settings.times.connectMs);
    this.#checks = new ArgumentChecks(log, settings.argumentThread);
    this.#vault = settings.vaultUrl === null ? null : new VaultWay(settings.vaultUrl);
    this.#log = log;
    this.#sse = new SseReach({ internalHosts: settings.internalHosts, vault: this.#vault });
    this.relay = new ServerRelay({ configured: settings.configured, children: this.#children, reach: this.#reach, sse: this.#sse, log });
  }

  /** Ends the children of a host before this one. */
  async start(): Promise<void> {
    // The client reads by schemas that it makes at first use: the first session is not to wait for that.
    preloadSchemas();
    const ended = await this.#children.sweep();
    if (ended > 0) this.#log.info({ processes: ended }, "server.orphans_ended");
  }

  /** The names that the operator gave. */
  configured(): readonly string[] {
    return [...this.#settings.configured.keys()];
  }

  open(row: HandRow & { readonly server: string }, keep: Keep): ServerRunner {
    const wanted = Wanted.parse(JSON.parse(row.server));
    const shared = sharedOf(wanted);
    if (shared === null) return this.#make(wanted, row.hand, keep);
    return this.#shared.open(shared, keep, () => this.#make(wanted, shared, keep));
  }

  /** Keeps a grant for a server, the newest that a worker brought. Of a shared one each session brings its own, for the hand's own vaults alone. */
  take(row: HandRow, { fence }: Holder, grant: string): void {
    const shared = row.server === null ? null : sharedOf(Wanted.parse(JSON.parse(row.server)));
    this.#grants.take(shared === null ? { hand: row.hand, fence } : { hand: shared, fence: 0 }, grant);
  }

  forget(hand: string): void {
    this.#grants.forget(hand);
  }

  #make(wanted: z.infer<typeof Wanted>, hand: string, keep: Keep): ServerHand {
    const { times } = this.#settings;
    return new ServerHand({
      name: wanted.name,
      hand,
      where: this.#whereOf(wanted, hand),
      times: {
        connectMs: wanted.times?.connectMs ?? times.connectMs,
        idleMs: wanted.times?.idleMs ?? times.idleMs,
        totalMs: wanted.times?.totalMs ?? times.totalMs,
      },
      log: this.#log,
      checks: this.#checks,
      keep,
    });
  }

  async stop(): Promise<void> {
    await this.#checks.stop();
    await this.relay.stop();
    await this.#sse.close();
    await this.#reach.close();
    await this.#vault?.close();
  }

  #whereOf({ transport }: z.infer<typeof Wanted>, hand: string): Where | null {
    if (transport.type === "url") return { ...this.#at(new URL(transport.url), hand), isSse: transport.isSse === true };
    const server = this.#settings.configured.get(transport.server);
    if (server === undefined) return null;
    if (server.type === "url") return { ...this.#at(server.url, hand), isSse: server.isSse };
    const { command } = server;
    return { type: "command", secrets: Object.values(command.env), start: () => this.#children.start(hand, command) };
  }

  #at(url: URL, hand: string): Extract<Where, { type: "url" }> {
    const direct: Fetch = this.#reach.fetch;
    return { type: "url", url, fetch: this.#vault?.fetchFor(url, () => this.#grants.of(hand), direct) ?? direct };
  }
}

/** The name of the connection that a shared server's sessions use; null: each has its own. */
function sharedOf(wanted: z.infer<typeof Wanted>): string | null {
  if (wanted.shared === undefined) return null;
  const key = textOf({ ...wanted, name: "" });
  return `shared-${createHash("sha256").update(key).digest("hex").slice(0, 16)}`;
}
