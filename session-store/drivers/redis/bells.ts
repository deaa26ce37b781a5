// Bells, on a connection of their own: commands never wait behind them, and a subscribed connection can't send any.
//
//   B1  A bell is a hint. After a cut every listener is told to look, since bells may have been missed.
//   B2  A listener that throws stops nobody else's bell from ringing.
//   B3  A connection counts once the server has answered on it.

import { Refusal } from "../../refusal.ts";
import type { Client, Log } from "./connection.ts";
import { Connection, saying } from "./connection.ts";
import { pause, within } from "./deadline.ts";

const LISTEN_MAX_MS = 5_000;
const RETRY_MS = 20;
const SUBSCRIBED_MAX = 50_000;

/** Hears the text of a bell, or null: look for yourself. */
type Hear = (text: string | null) => void;

export class Bells {
  readonly #listeners = new Map<string, Set<Hear>>();
  readonly #connection: Connection;
  readonly #log: Log;
  #isFirst = true;

  constructor(url: string, log: Log) {
    this.#log = log;
    this.#connection = new Connection({ url, name: "bells", log, greet: (client) => this.#resubscribe(client) });
  }

  /** Hears a channel from when it resolves until the returned function is called. Refuses (`store_busy`) when it can't be heard in time. */
  async listen(channel: string, hear: Hear): Promise<() => void> {
    const hearers = this.#listeners.get(channel) ?? new Set();
    if (hearers.size === 0 && this.#listeners.size >= SUBSCRIBED_MAX) throw new Refusal("store_busy", undefined, { detail: "too many listeners" });
    this.#listeners.set(channel, hearers.add(hear));
    const deadline = performance.now() + LISTEN_MAX_MS;
    let cause: unknown;
    while (performance.now() < deadline) {
      const client = await this.#connection.ready(deadline - performance.now());
      if (!client) break;
      try {
        await within(deadline - performance.now(), client.subscribe(channel, this.#ring));
        return () => this.#hush(channel, hear);
      } catch (error) {
        cause = error;
        await pause(RETRY_MS, this.#connection.closing);
      }
    }
    this.#hush(channel, hear);
    throw new Refusal("store_busy", undefined, { detail: saying(cause ?? this.#connection.cause) });
  }

  close(): Promise<void> {
    this.#listeners.clear();
    return this.#connection.close();
  }

  readonly #ring = (message: string, channel: string): void => {
    for (const hear of [...(this.#listeners.get(channel) ?? [])]) this.#tell(hear, message);
  };

  #hush(channel: string, hear: Hear): void {
    const hearers = this.#listeners.get(channel);
    if (!hearers?.delete(hear) || hearers.size > 0) return;
    this.#listeners.delete(channel);
    // Without a connection there is nothing to take back: only what is listened to is subscribed again.
    this.#connection.client?.unsubscribe(channel, this.#ring).catch((error) => this.#log.info({ cause: saying(error) }, "bell.left"));
  }

  /** B1 B3 */
  async #resubscribe(client: Client): Promise<void> {
    // An answer, also where nothing is listened to yet: a server that accepts and closes is none, and is asked less and less often.
    await client.sendCommand(["PING"]);
    const channels = [...this.#listeners.keys()];
    if (channels.length > 0) await client.subscribe(channels, this.#ring);
    if (!this.#isFirst) for (const hearers of [...this.#listeners.values()]) for (const hear of [...hearers]) this.#tell(hear, null);
    this.#isFirst = false;
  }

  /** B2 */
  #tell(hear: Hear, message: string | null): void {
    try {
      hear(message);
    } catch (error) {
      this.#log.error({ cause: saying(error) }, "bell.failed");
    }
  }
}
