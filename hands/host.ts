// The hand host: the hands of one machine, what they run in, and who holds them. mcp.ts is its door.
//
//   D1  A session has at most one live sandbox here, and one live hand for each MCP server; its folder is named by the hand, so a hand that is going
//       away never meets the next one.
//   D2  A hand is forgotten only when its folder is gone; until then the sweeper tries again.
//   D3  After a restart every hand of the ledger is there again with its files (B1); nothing that ran goes on, and M4 says so.

import { join } from "node:path";
import type { Logger } from "pino";
import { mint, type SessionId } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import { Calls } from "./calls.ts";
import type { HandRef, Holder, ListAsk, Outcome, PrepareAsk, Prepared, ServerTools, ServerWanted, ToolUse, WayOut } from "./hand.ts";
import type { HandRow, Ledger } from "./ledger.ts";
import type { ServerRelay } from "./relay/door.ts";
import type { Runner } from "./runner.ts";
import type { SandboxDriver } from "./sandbox.ts";
import { isServer, SERVER_DRIVER, SERVER_SETTINGS, ServerHands, type ServerSettings, textOf } from "./servers/hands.ts";
import { Sweeper } from "./sweeper.ts";
import { outputName } from "./tools/cap.ts";
import { WORKSPACE } from "./tools/places.ts";

const HANDS_MAX = 10_000;

export interface HandHostOptions {
  readonly ledger: Ledger;
  readonly driver: SandboxDriver;
  readonly dataDir: string;
  readonly log: Logger;
  /** How long (ms) a sandbox may do nothing before its processes are ended. */
  readonly idleMs?: number;
  /** How MCP servers are reached; none otherwise. */
  readonly servers?: ServerSettings;
}

export class HandHost {
  readonly #ledger: Ledger;
  readonly #driver: SandboxDriver;
  readonly #log: Logger;
  readonly #calls: Calls;
  /** Sandboxes and servers, by hand. */
  readonly #runners = new Map<string, Runner>();
  readonly #servers: ServerHands;
  readonly #adopted: ReadonlySet<string>;
  readonly #sweeper: Sweeper;
  /** An environment asked for a network that this host's sandboxes don't have. */
  #hasSaidNoNetwork = false;

  constructor({ ledger, driver, dataDir, log, idleMs, servers }: HandHostOptions) {
    this.#ledger = ledger;
    this.#driver = driver;
    this.#log = log;
    this.#adopted = new Set(ledger.hands().map((row) => row.hand));
    this.#calls = new Calls(ledger, (row) => this.#runner(row));
    this.#servers = new ServerHands(servers ?? SERVER_SETTINGS, ledger.hostId, log);
    this.#sweeper = new Sweeper({
      ledger,
      sandboxes: this.#runners,
      driver: withServers(driver, ledger),
      root: join(dataDir, "sandboxes"),
      log,
      // What still runs of it is watched from now on, so that it ends when it stays idle.
      adopt: (hand) => {
        const row = ledger.hand(hand);
        if (row !== undefined) this.#runner(row);
      },
      ...(idleMs === undefined ? {} : { idleMs }),
    });
  }

  get relay(): ServerRelay {
    return this.#servers.relay;
  }

  /** Removes what belongs to nobody and starts the sweeper. */
  async start(): Promise<void> {
    await this.#servers.start();
    await this.#sweeper.start();
    this.#log.info({ hands: this.#ledger.hands().length, boot: this.#ledger.boot }, "hands.adopted");
  }

  identity(): { readonly id: string; readonly boot: number } {
    return { id: this.#ledger.hostId, boot: this.#ledger.boot };
  }

  /** The session's sandbox, or its hand for this server. D1 */
  async provision(holder: Holder, wanted: ServerWanted | null = null): Promise<HandRef> {
    const server = wanted === null ? null : textOf(wanted);
    const known = this.#ledger.handOf(holder.session, server);
    if (known !== undefined) await this.#calls.announce(known.hand, holder);
    const hand = known?.hand ?? (await this.#make(holder, server));
    return { hand, host: this.#ledger.hostId };
  }

  /** The sandbox with the repositories that it can have. */
  async prepare(hand: string, holder: Holder, { repositories, wayOut }: PrepareAsk): Promise<readonly Prepared[]> {
    const { session, ...row } = this.#calls.held(hand, holder);
    if (wayOut) this.#admit({ ...holder, session }, wayOut);
    const prepared = await this.#runner({ ...row, session }).prepare?.(repositories);
    const message = `A ${row.driver} sandbox has no git: repositories need a hand host with containers (MANYHANDS_SANDBOX=docker).`;
    return prepared ?? repositories.map(({ id }) => ({ type: "failed", id, error: "repository_clone_error", message }));
  }

  isServer(hand: string): boolean {
    return typeof this.#ledger.hand(hand)?.server === "string";
  }

  /** The servers that the operator named. */
  configured(): readonly string[] {
    return this.#servers.configured();
  }

  /** What a server offers; connects to it if that was not done yet. */
  async listTools(hand: string, holder: Holder, ask: ListAsk): Promise<ServerTools> {
    const row = this.#calls.held(hand, holder);
    if (ask.grant !== undefined) this.#servers.take(row, holder, ask.grant);
    const runner = this.#runner(row);
    if (!isServer(runner)) throw new Refusal("invalid_request", "The hand is no MCP server.");
    return await runner.listTools(ask);
  }

  announce(hand: string, holder: Holder): Promise<void> {
    return this.#calls.announce(hand, holder);
  }

  async transfer(hand: string, holder: Holder, to: Holder): Promise<void> {
    await this.#calls.announce(hand, holder);
    await this.#ledger.setHolder(hand, to);
  }

  /** Without a holder: a client that uses the hand directly, on behalf of whoever holds it. */
  async execute(hand: string, holder: Holder | undefined, use: ToolUse, mayRerun: boolean): Promise<Outcome> {
    const started = performance.now();
    if (use.wayOut && holder) this.#admit({ ...holder, session: this.#calls.held(hand, holder).session }, use.wayOut);
    if (use.grant !== undefined && holder !== undefined) this.#servers.take(this.#calls.held(hand, holder), holder, use.grant);
    const outcome = await this.#calls.execute(hand, holder ?? this.#holderOf(hand), use, mayRerun);
    this.#log.info({ hand, toolUseId: use.id, tool: use.name, outcome: outcome.type, ms: Math.round(performance.now() - started) }, "tool.answered");
    return outcome;
  }

  cancel(hand: string, holder: Holder, toolUseId: string): Promise<Outcome> {
    return this.#calls.cancel(hand, holder, toolUseId, "it was cancelled");
  }

  async settled(hand: string, holder: Holder, toolUseIds: readonly string[]): Promise<void> {
    await this.#calls.announce(hand, holder);
    await this.#ledger.settled(hand, toolUseIds);
  }

  /** Files and processes of a session's hands go. D2 */
  async release(session: SessionId): Promise<void> {
    const rows = this.#ledger.hands().filter((row) => row.session === session);
    for (const row of rows) {
      this.#servers.forget(row.hand);
      const ended = this.#calls.end([row], "the hand was given back");
      await this.#ledger.markReleasing(row.hand);
      await ended;
      await this.#sweeper.remove(row.hand);
    }
  }

  instances(): readonly { readonly hand: string; readonly session: SessionId }[] {
    return this.#ledger.hands().map(({ hand, session }) => ({ hand, session }));
  }

  /** Ends every call as failed, durably, and every sandbox. */
  async stop(): Promise<void> {
    this.#calls.close();
    this.#sweeper.stop();
    await this.#calls.end(this.#ledger.hands(), "the hand host was shut down");
    await Promise.all([...this.#runners.values()].map((runner) => runner.stop("the hand host was shut down")));
    await this.#servers.stop();
    await this.#ledger.close();
  }

  async #make(holder: Holder, server: string | null): Promise<string> {
    if (this.#ledger.hands().length >= HANDS_MAX) throw new Refusal("store_busy", "The hand host has as many hands as it can hold.");
    const hand = mint("hand");
    const row: HandRow = {
      hand,
      session: holder.session,
      driver: server === null ? this.#driver.name : SERVER_DRIVER,
      folder: hand,
      created: Date.now(),
      holder: holder.session,
      fence: holder.fence,
      state: "live",
      server,
    };
    await this.#ledger.addHand(row);
    this.#runner(row);
    this.#log.info({ hand, sessionId: holder.session, fence: holder.fence, driver: row.driver }, "hand.provisioned");
    return hand;
  }

  #runner(row: HandRow): Runner {
    const open = this.#runners.get(row.hand) ?? this.#open(row);
    this.#runners.set(row.hand, open);
    return open;
  }

  #open(row: HandRow): Runner {
    const { server } = row;
    if (server !== null) return this.#servers.open({ ...row, server }, (toolUseId, text) => this.#keep(row, toolUseId, text));
    if (!this.#driver.takes.includes(row.driver)) return closedSandbox(row.driver);
    return this.#driver.open(this.#sweeper.folderOf(row.folder), this.#adopted.has(row.hand), row.session);
  }

  /** A server's long text, whole, into a file of the session's sandbox; the sandbox itself writes it, as only that knows what its paths mean. */
  async #keep({ session, fence }: HandRow, toolUseId: string, text: string): Promise<string> {
    const path = `${WORKSPACE}/.manyhands/${outputName(toolUseId)}`;
    const hand = this.#ledger.handOf(session)?.hand ?? (await this.#make({ session, fence }, null));
    const sandbox = this.#ledger.hand(hand);
    const call = { id: `${toolUseId}:copy`, tool: "write", input: { file_path: path, content: text } };
    const outcome = sandbox && (await this.#runner(sandbox).run(call));
    return outcome?.type === "done" && !outcome.isError ? `All of it is in ${path}.` : "The rest could not be kept.";
  }

  #admit(holder: Holder, wayOut: WayOut): void {
    this.#driver.admit?.(holder, wayOut);
    if (this.#driver.admit !== undefined || this.#hasSaidNoNetwork) return;
    this.#log.warn({ sandbox: this.#driver.name }, "network.unmet");
    this.#hasSaidNoNetwork = true;
  }

  #holderOf(hand: string): Holder {
    const row = this.#ledger.hand(hand);
    if (row === undefined) throw new Refusal("hand_lost", "The hand is gone.");
    return { session: row.holder, fence: row.fence };
  }
}

/** For a hand of another kind of sandbox than this host has now: its files are kept, and nothing runs. */
function closedSandbox(driver: string): Runner {
  const reason = `the hand is a ${driver} sandbox, and the hand host could not use ${driver} when it started`;
  return { run: async () => ({ type: "failed", reason }), cancel() {}, stop: async () => {}, idleSince: () => null };
}

/** The driver as the sweeper sees it: a server's hand has nothing in its charge. */
function withServers(driver: SandboxDriver, ledger: Ledger): SandboxDriver {
  return {
    name: driver.name,
    takes: [...driver.takes, SERVER_DRIVER],
    open: (folder, isAdopted, session) => driver.open(folder, isAdopted, session),
    ...(driver.sweep ? { sweep: (isOwned, isStart) => driver.sweep?.(isOwned, isStart) ?? Promise.resolve([]) } : {}),
    remove: async (hand) => ledger.hand(hand)?.driver === SERVER_DRIVER || ((await driver.remove?.(hand)) ?? true),
  };
}
