// Sends steps and reads, and sends them again as long as that can help.
//
//   R1  Every call ends within CALL_MAX_MS: with its answer, `store_busy` (surely nothing was done), or `store_in_doubt` (the answer was lost).
//   R2  A step that was cut off is sent again as it is: the same keys, arguments and nonces. Each step's header says why that is safe.
//   R3  What the server refused (loading, read-only) is sent again until the deadline; short of memory or disk: `store_busy` at once.

import { ClientClosedError, ClientOfflineError, ErrorReply } from "redis";
import { Refusal } from "../../refusal.ts";
import type { Client, Connection } from "./connection.ts";
import { saying } from "./connection.ts";
import { jittered, Late, pause, within } from "./deadline.ts";
import { list, text } from "./reply.ts";
import type { Script, Scripts, StepName } from "./scripts.ts";

const CALL_MAX_MS = 5_000;
const RETRY_FIRST_MS = 10;
const RETRY_MAX_MS = 200;

/** What a step answers: a word, then what its header says. */
export interface Answer {
  readonly word: string;
  readonly rest: readonly unknown[];
}

export interface CallOptions {
  /** A lost answer leaves nobody in doubt. */
  readonly isRead?: boolean;
  readonly maxMs?: number;
}

export class Commands {
  readonly #connection: Connection;
  readonly #scripts: Scripts;

  constructor(connection: Connection, scripts: Scripts) {
    this.#connection = connection;
    this.#scripts = scripts;
  }

  /** One atomic step. */
  async step(name: StepName, keys: readonly string[], args: readonly (string | number)[], options: CallOptions = {}): Promise<Answer> {
    const script = this.#scripts[name];
    const rest = [String(keys.length), ...keys, ...args.map(String)];
    const [word, ...answer] = list(await this.#call((client) => evaluate(client, script, rest), options));
    return { word: text(word), rest: answer };
  }

  /** Commands that only read, in one round trip, not atomic together. */
  async read(commands: readonly (readonly string[])[]): Promise<readonly unknown[]> {
    return await this.#call((client) => Promise.all(commands.map((command) => client.sendCommand<unknown>(command))), { isRead: true });
  }

  /** A single command that changes something and may be sent twice. */
  async write(command: readonly string[], options: CallOptions = {}): Promise<unknown> {
    return await this.#call((client) => client.sendCommand<unknown>(command), options);
  }

  async #call<T>(send: (client: Client) => Promise<T>, options: CallOptions): Promise<T> {
    const deadline = performance.now() + (options.maxMs ?? CALL_MAX_MS);
    const left = () => deadline - performance.now();
    let mayBeDone = false;
    for (let tries = 0; ; tries++) {
      const client = await this.#connection.ready(left());
      if (!client) throw refusal(mayBeDone, this.#connection.cause);
      try {
        return await within(left(), send(client));
      } catch (error) {
        const fate = fateOf(error);
        if (fate === "bug") throw error;
        mayBeDone ||= !options.isRead && (fate === "late" || fate === "cut");
        const backoffMs = jittered(Math.min(RETRY_FIRST_MS * 2 ** tries, RETRY_MAX_MS));
        if (fate === "late" || fate === "short" || left() <= backoffMs) throw refusal(mayBeDone, error);
        await pause(backoffMs, this.#connection.closing);
      }
    }
  }
}

async function evaluate(client: Client, script: Script, rest: readonly string[]): Promise<unknown> {
  try {
    return await client.sendCommand<unknown>(["EVALSHA", script.sha, ...rest]);
  } catch (error) {
    if (!(error instanceof ErrorReply) || !error.message.startsWith("NOSCRIPT")) throw error;
    return await client.sendCommand<unknown>(["EVAL", script.text, ...rest]);
  }
}

/** `late`: no answer in time; `cut`: it may have been done; `unsent`, `again`: it was not; `short`: nor will it be soon. */
type Fate = "late" | "cut" | "unsent" | "again" | "short" | "bug";

function fateOf(error: unknown): Fate {
  if (error instanceof Late) return "late";
  if (error instanceof ErrorReply) {
    const [code = ""] = error.message.split(" ", 1);
    if (["OOM", "MISCONF", "NOREPLICAS"].includes(code)) return "short";
    if (["LOADING", "READONLY", "BUSY", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN", "NOAUTH", "NOSCRIPT"].includes(code)) return "again";
    return "bug";
  }
  if (error instanceof ClientClosedError || error instanceof ClientOfflineError) return "unsent";
  if (error instanceof TypeError || error instanceof RangeError) return "bug";
  if (error instanceof Error && error.message === "The queue is full") return "short";
  return "cut";
}

function refusal(mayBeDone: boolean, cause: unknown): Refusal {
  return new Refusal(mayBeDone ? "store_in_doubt" : "store_busy", undefined, { detail: saying(cause), cause });
}
