// A session's own connection to one MCP server, as a hand: opened at first need, used for its calls, opened anew when it broke.
//
//   N1  What goes wrong is an outcome that names the server and comes at once: nobody waits for a time limit to hear of a crash.
//   N2  Each call carries a progress token. A word of progress starts the idle limit anew, never the total one. When a limit or a cancel ends a call
//       the server is told, a late answer is dropped, and the outcome says which limit it was.
//   N3  A session id that the server forgot: one new connection and one more try. A second time it is an error.
//   N4  A call whose connection broke after it was sent may have run, and its outcome says so.
//   N5  A failed connection is tried again when somebody asks, not faster than a growing pause allows; `isFresh` asks at once.
//   N6  A call that names an approved definition is sent only to a server whose list, read over this very connection and not longer ago than
//       PIN_AGE_MS, has that definition.
//   N7  A call that was refused for want of credentials is told of once, at the next ask for the list: the session is to know why.

import { ProtocolError } from "@modelcontextprotocol/client";
import type { Logger } from "pino";
import type { ListAsk, Outcome, ServerTools } from "../hand.ts";
import type { Runner, RunnerCall } from "../runner.ts";
import { cut, isOverCap, preview } from "../tools/cap.ts";
import type { ArgumentChecks } from "./argument-checks.ts";
import { Ended, Limits, type Times } from "./call-limits.ts";
import { Connection, statusOf, Trouble, type Where } from "./connection.ts";
import { REASON_CHARS_MAX } from "./limits.ts";
import { masked } from "./mask.ts";
import { Relisting } from "./relisting.ts";
import { shownOf } from "./result.ts";
import { readList } from "./tool-list.ts";
import { ToolSchemas } from "./tool-schemas.ts";
import { inTime, unless } from "./waiting.ts";

const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 60_000;
/** N6 */
const PIN_AGE_MS = 60_000;
/** Beyond the limits that end a request by its signal. */
const NEVER_MS = 2_000_000_000;

export interface ServerHandOptions {
  /** As the agent calls it. */
  readonly name: string;
  readonly hand: string;
  /** Null: nobody configured it here. */
  readonly where: Where | null;
  readonly times: Times;
  readonly log: Logger;
  readonly checks: ArgumentChecks;
  readonly keep: Keep;
}

/** Puts a long text where the session can read it; gives the words that say where. */
export type Keep = (toolUseId: string, text: string) => Promise<string>;

type Ready = Extract<ServerTools, { type: "ready" }>;
type Failed = Extract<ServerTools, { type: "failed" }>;

interface Running {
  readonly controller: AbortController;
}

export class ServerHand implements Runner {
  readonly #options: ServerHandOptions;
  readonly #running = new Map<string, Running>();
  #connection: Connection | null = null;
  #opening: Promise<Connection> | null = null;
  #list: Ready | null = null;
  readonly #schemas: ToolSchemas;
  /** Over which connection the list was read, and when. */
  #listed: { readonly by: Connection; readonly at: number } | null = null;
  #listing: Promise<Ready | Failed> | null = null;
  #failed: (Failed & { readonly at: number; readonly waitMs: number; isTold: boolean }) | null = null;
  #complaint: Failed | null = null;
  /** What is being read may be the list before the change. */
  readonly #relisting = new Relisting(() => void (this.#listing ?? Promise.resolve()).then(() => this.#connection && this.#refresh()));
  #idleSince = Date.now();
  /** Aborts what is being opened or listed. */
  #over = new AbortController();

  constructor(options: ServerHandOptions) {
    this.#options = options;
    this.#schemas = new ToolSchemas(options.checks);
  }

  async listTools({ known, waitMs, isFresh }: ListAsk): Promise<ServerTools> {
    const complaint = this.#complaint;
    this.#complaint = null;
    if (complaint !== null && !isFresh) return complaint; // N7
    const now = this.#known(isFresh);
    // A list that is being read again is, for who can't wait, what it was.
    const told = now ?? (await inTime(waitMs, this.#refresh())) ?? this.#list;
    if (told === null) return { type: "connecting" };
    return told.type === "ready" && told.hash === known ? { type: "same" } : told;
  }

  /** `keep`: of the session whose call it is, where several share the connection. */
  async run(call: RunnerCall, keep: Keep = this.#options.keep): Promise<Outcome> {
    const controller = new AbortController();
    this.#running.set(call.id, { controller });
    try {
      return await this.#call(call, controller, keep);
    } finally {
      this.#running.delete(call.id);
      this.#idleSince = Date.now();
    }
  }

  cancel(toolUseId: string, reason: string): void {
    this.#running.get(toolUseId)?.controller.abort(new Ended(reason));
  }

  async stop(reason: string): Promise<void> {
    for (const { controller } of this.#running.values()) controller.abort(new Ended(reason));
    this.#relisting.stop();
    this.#over.abort(new Ended(reason));
    this.#over = new AbortController();
    const connection = this.#connection;
    this.#connection = null;
    await this.#opening?.then((opened) => opened.close()).catch(() => {});
    await connection?.close();
  }

  idleSince(): number | null {
    return this.#connection === null || this.#running.size > 0 ? null : this.#idleSince;
  }

  /** What can be said without asking the server. N5 */
  #known(isFresh: boolean): Ready | Failed | null {
    if (isFresh || this.#listing !== null) return null;
    if (this.#list !== null) return this.#list;
    if (this.#failed === null || (this.#failed.isTold && performance.now() - this.#failed.at >= this.#failed.waitMs)) return null;
    this.#failed.isTold = true;
    return { type: "failed", cause: this.#failed.cause, message: this.#failed.message };
  }

  #refresh(): Promise<Ready | Failed> {
    this.#listing ??= this.#read().finally(() => {
      this.#listing = null;
    });
    return this.#listing;
  }

  async #read(): Promise<Ready | Failed> {
    const { name, times, log, hand } = this.#options;
    const signal = AbortSignal.any([this.#over.signal, AbortSignal.timeout(times.connectMs)]);
    try {
      const list = await this.#again(async (connection) => {
        const ask = { signal, timeoutMs: NEVER_MS };
        const at = performance.now();
        const schemas = new Map<string, unknown>();
        const page = (cursor: string | undefined) => connection.request("tools/list", cursor === undefined ? {} : { cursor }, ask);
        const read = await readList(page, connection.hasHeaders, (tool, schema) => schemas.set(tool, schema));
        this.#schemas.replace(schemas);
        this.#listed = { by: connection, at };
        const { server, protocolVersion } = connection;
        return { ...read, ...(server ? { server } : {}), ...(protocolVersion === undefined ? {} : { protocolVersion }) };
      });
      for (const note of list.notes) log.warn({ hand, server: name, tool: note.tool, keyword: note.keyword, what: note.what }, "server.tool_odd");
      this.#list = list;
      this.#failed = null;
      this.#idleSince = Date.now();
      return list;
    } catch (error) {
      const { kind, says } = this.#told(error, signal);
      const waitMs = Math.min((this.#failed?.waitMs ?? RETRY_MS_MIN / 2) * 2, RETRY_MS_MAX);
      const failed = { type: "failed", cause: kind, message: `MCP server ${quoted(name)}: ${says}` } as const;
      this.#failed = { ...failed, at: performance.now(), waitMs, isTold: false };
      log.warn({ hand, server: name, kind }, "server.unreachable");
      return failed;
    }
  }

  async #call(call: RunnerCall, controller: AbortController, keep: Keep): Promise<Outcome> {
    const { name, times } = this.#options;
    const limits = new Limits(times, controller);
    try {
      const wrong = await this.#schemas.wrongIn(call.tool, call.input);
      if (wrong !== null) return this.#error(`the arguments do not fit the tool's schema, and it was not run: ${wrong}`);
      const given = await this.#again(async (connection) => {
        limits.start();
        if (call.pin !== undefined) await this.#hold(call.tool, call.pin, connection);
        controller.signal.throwIfAborted();
        const on = { signal: controller.signal, timeoutMs: NEVER_MS, onProgress: () => limits.heard() };
        return await this.#schemas.send(connection, call, on, () => this.#refresh());
      }, controller.signal);
      const shown = shownOf(given);
      if (shown === null) return this.#error("it gave something that is no result of a tool");
      return { type: "done", ...shown, content: await Promise.all(shown.content.map((block) => this.#bounded(call.id, block, keep))) };
    } catch (error) {
      return this.#outcomeOf(error, name, controller.signal);
    } finally {
      limits.stop();
    }
  }

  /** N6 */
  async #hold(tool: string, pin: string, connection: Connection): Promise<void> {
    const isKnown = this.#list !== null && this.#listed?.by === connection && performance.now() - this.#listed.at < PIN_AGE_MS;
    const read = isKnown ? this.#list : await this.#refresh();
    if (read === null || read.type === "failed") throw new Trouble("its tools could not be read again, to compare them with what was approved");
    const now = read.tools.find(({ name }) => name === tool);
    if (now?.hash === pin) return;
    const says = now === undefined ? "the server does not list it any more" : "its definition is another one than was approved";
    throw new Ended(`tool ${JSON.stringify(tool)} is held back: ${says}; it was not run`);
  }

  #outcomeOf(error: unknown, name: string, signal: AbortSignal): Outcome {
    if (error instanceof Ended) return { type: "failed", reason: error.message };
    if (signal.aborted && signal.reason instanceof Ended) return { type: "failed", reason: signal.reason.message };
    if (error instanceof ProtocolError) return this.#error(error.message);
    if (!(error instanceof Trouble)) {
      this.#options.log.warn({ hand: this.#options.hand, server: name, err: error }, "server.answer_odd");
      return this.#error("its answer could not be read");
    }
    const says = `MCP server ${quoted(name)}: ${error.message}`;
    if (error.kind === "authentication") this.#complaint = { type: "failed", cause: error.kind, message: says };
    return error.mayHaveRun ? { type: "unknown", reason: says } : { type: "failed", reason: `${says}; it was not run` }; // N4
  }

  /** The server's own "no", for the model. */
  #error(says: string): Outcome {
    const text = `MCP server ${quoted(this.#options.name)}: ${cut(this.#masked(says).toWellFormed(), REASON_CHARS_MAX * 4)}`;
    return { type: "done", content: [{ type: "text", text }], isError: true };
  }

  async #bounded<Block extends { readonly type: string }>(
    toolUseId: string,
    block: Block,
    keep: Keep,
  ): Promise<Block | { type: "text"; text: string }> {
    if (block.type !== "text" || !("text" in block) || typeof block.text !== "string" || !isOverCap(block.text)) return block;
    return { type: "text", text: preview(block.text, await keep(toolUseId, block.text)) };
  }

  /** Work on an open connection; once more where the server forgot the session. N3 */
  async #again<T>(work: (connection: Connection) => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (let isFirst = true; ; isFirst = false) {
      const connection = await this.#open(signal);
      try {
        return await work(connection);
      } catch (error) {
        if (!connection.isOpen && this.#connection === connection) this.#connection = null;
        if (!isFirst || !(error instanceof Trouble) || !error.isForgotten) throw error;
        this.#options.log.info({ hand: this.#options.hand, server: this.#options.name }, "server.session_renewed");
      }
    }
  }

  async #open(signal?: AbortSignal): Promise<Connection> {
    if (this.#connection?.isOpen === true) return this.#connection;
    this.#connection = null;
    this.#opening ??= this.#connect().finally(() => {
      this.#opening = null;
    });
    const opening = this.#opening;
    if (signal === undefined) return await opening;
    // A call that is ended does not wait for the connection; whoever else asked for it still gets it.
    return await unless(signal, opening);
  }

  async #connect(): Promise<Connection> {
    const { where, times, log, hand, name } = this.#options;
    if (where === null) throw new Trouble("nobody configured it at this hand host");
    const { connectMs } = times;
    const late = AbortSignal.timeout(connectMs);
    const heard = {
      toolsChanged: () => this.#relisting.changed(),
      closed: () => log.info({ hand, server: name }, "server.closed"),
      stray: (line: string) => log.info({ hand, server: name, line: this.#masked(line).slice(0, REASON_CHARS_MAX) }, "server.said"),
      // Its message may be a page of the server's.
      trouble: (error: Error) => log.debug({ hand, server: name, error: error.name, status: statusOf(error) ?? undefined }, "server.trouble"),
    };
    const over = this.#over.signal;
    try {
      const connection = await Connection.open(where, heard, AbortSignal.any([over, late]), connectMs);
      this.#connection = connection;
      this.#idleSince = Date.now();
      log.info({ hand, server: name, era: connection.era }, "server.connected");
      return connection;
    } catch (error) {
      if (late.aborted) throw new Trouble(`it did not answer within ${connectMs} ms, the limit for connecting`, { cause: error });
      throw error;
    }
  }

  #masked(text: string): string {
    const { where } = this.#options;
    return where?.type === "command" ? masked(text, where.secrets) : text;
  }

  #told(error: unknown, signal: AbortSignal): { readonly kind: Failed["cause"]; readonly says: string } {
    if (error instanceof Trouble) return { kind: error.kind, says: error.message };
    if (signal.aborted) return { kind: "connection", says: `it did not answer within ${this.#options.times.connectMs} ms, the limit for connecting` };
    if (error instanceof ProtocolError)
      return { kind: "connection", says: `it refused to list its tools: ${cut(this.#masked(error.message).toWellFormed(), REASON_CHARS_MAX)}` };
    this.#options.log.warn({ hand: this.#options.hand, server: this.#options.name, err: error }, "server.answer_odd");
    return { kind: "connection", says: "its answer could not be read" };
  }
}

const quoted = (name: string): string => JSON.stringify(cut(name, 100));
