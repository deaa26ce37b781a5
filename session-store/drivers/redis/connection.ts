// One connection to Redis that comes back for ever.
//
//   C1  At a cut everything in flight is rejected; who sent it decides about sending it again. Nothing is queued while there is no connection.
//   C2  A connection is used once `greet` has found the server fit, each time anew: a restarted or replaced server may be another one.
//   C3  A server that answers no ping for SILENCE_MAX_MS is as good as gone: the connection is dropped, and a new one is tried.
//   C4  It retries for ever with jittered back-off; an outage is logged once when it starts and once when it ends.
//   C5  `close` ends within CLOSE_MAX_MS, whatever the server does.

import { setMaxListeners } from "node:events";
import { createClient, ErrorReply } from "redis";
import { Refusal } from "../../refusal.ts";
import { jittered, Late, pause, within } from "./deadline.ts";

/** What the driver needs of a logger; pino's fits. */
export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const CONNECT_MAX_MS = 3_000;
const PING_EVERY_MS = 2_000;
const SILENCE_MAX_MS = 6_000;
const BACKOFF_FIRST_MS = 50;
const BACKOFF_MAX_MS = 1_000;
const CLOSE_MAX_MS = 1_500;
/** Commands that are sent and not answered; more are refused. */
const COMMANDS_MAX = 8_192;

const makeClient = (url: string) =>
  createClient({
    url,
    RESP: 2,
    disableOfflineQueue: true,
    commandsQueueMaxLength: COMMANDS_MAX,
    maintNotifications: "disabled",
    disableClientInfo: true,
    commandOptions: { timeout: 0 },
    socket: { connectTimeout: CONNECT_MAX_MS, reconnectStrategy: false },
  });
export type Client = ReturnType<typeof makeClient>;

export interface ConnectionOptions {
  readonly url: string;
  /** Which one it is, in the log. */
  readonly name: "commands" | "bells";
  readonly log: Log;
  /** Makes a fresh connection ready; what it throws counts as not connected. */
  readonly greet: (client: Client) => Promise<void>;
}

export class Connection {
  readonly #options: ConnectionOptions;
  readonly #closing = new AbortController();
  readonly #running: Promise<void>;
  readonly #waiting = new Set<() => void>();
  #client: Client | null = null;
  #cause: unknown = new Error("not connected yet");

  constructor(options: ConnectionOptions) {
    this.#options = options;
    // Every call that waits to be sent again listens; COMMANDS_MAX and the callers' deadlines bound them.
    setMaxListeners(0, this.#closing.signal);
    this.#running = this.#run();
  }

  get client(): Client | null {
    return this.#client;
  }

  /** Why there is no connection. */
  get cause(): unknown {
    return this.#cause;
  }

  /** Aborts when the connection is closed for good. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** The connection; null when there is none within `ms`, or none any more. */
  async ready(ms: number): Promise<Client | null> {
    if (this.#closing.signal.aborted) return null;
    if (this.#client || ms <= 0) return this.#client;
    await new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        this.#waiting.delete(done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      this.#waiting.add(done);
    });
    return this.#closing.signal.aborted ? null : this.#client;
  }

  async close(): Promise<void> {
    this.#cause = new Error("closed");
    this.#closing.abort();
    this.#wake();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { log, name } = this.#options;
    let failures = 0;
    let isDown = false;
    while (!this.#closing.signal.aborted) {
      const client = makeClient(this.#options.url);
      const gone = new Promise<unknown>((resolve) => client.on("error", resolve));
      try {
        await this.#untilClosed(within(CONNECT_MAX_MS, client.connect()));
        await this.#untilClosed(within(CONNECT_MAX_MS, this.#options.greet(client)));
        if (isDown) log.info({ connection: name, failures }, "connection.restored");
        isDown = false;
        failures = 0;
        this.#client = client;
        this.#wake();
        this.#cause = await this.#untilClosed(Promise.race([gone, this.#silence(client)]));
      } catch (error) {
        this.#cause = isLockedOut(error) ? new Refusal("store_unfit", "Redis refuses these credentials.") : error;
      }
      this.#client = null;
      if (this.#closing.signal.aborted && client.isReady) await within(CLOSE_MAX_MS, client.close()).catch(cutShort);
      client.destroy();
      if (this.#closing.signal.aborted) return;
      if (!isDown) log.warn({ connection: name, cause: saying(this.#cause) }, "connection.lost");
      isDown = true;
      // An unfit server does not become fit while a caller waits: it hears at once.
      if (this.#cause instanceof Refusal) this.#wake();
      await pause(jittered(Math.min(BACKOFF_FIRST_MS * 2 ** failures++, BACKOFF_MAX_MS)), this.#closing.signal);
    }
  }

  /** C3: ends with the reason when the server has been silent for too long. */
  async #silence(client: Client): Promise<unknown> {
    const isOver = () => !client.isReady || this.#closing.signal.aborted;
    while (!isOver()) {
      try {
        await within(SILENCE_MAX_MS, client.sendCommand(["PING"]));
      } catch (error) {
        // An error answer (loading, out of memory) is an answer; a rejection at a cut comes with `gone` as well.
        if (error instanceof Late || isOver()) return error;
      }
      await pause(PING_EVERY_MS, this.#closing.signal);
    }
    return new Error("closed");
  }

  #wake(): void {
    for (const done of [...this.#waiting]) done();
  }

  #untilClosed<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const stop = () => reject(new Error("closed"));
      if (this.#closing.signal.aborted) stop();
      this.#closing.signal.addEventListener("abort", stop, { once: true });
      work.then(resolve, reject).finally(() => this.#closing.signal.removeEventListener("abort", stop));
    });
  }
}

/** The text of an error of the client or the server; neither puts a credential into it. */
export function saying(error: unknown): string {
  if (error instanceof Refusal) return error.detail || error.message;
  if (error instanceof Error) return error.message || ("code" in error ? String(error.code) : error.name);
  return String(error);
}

const isLockedOut = (error: unknown): boolean => error instanceof ErrorReply && /^(NOAUTH|WRONGPASS|NOPERM)/.test(error.message);

/** C5: the connection is destroyed next, answered or not. */
function cutShort(): void {}
