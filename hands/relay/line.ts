// What carries a server's messages both ways: a child's standard input and output, or the older HTTP+SSE transport (sse-line.ts).
//
//   N1  What was sent arrives in its order, or its sender is told that it did not.

import type { Child } from "../servers/children.ts";
import { StdioTransport } from "../servers/stdio.ts";
import { type Envelope, readEnvelope } from "./envelope.ts";

export interface Hearing {
  message(message: Envelope): void;
  closed(): void;
}

export interface Line {
  /** Why it ended, in words; null while it is there. */
  readonly end: string | null;
  /** Of what was sent and not taken yet. */
  readonly waitingBytes: number;
  start(hearing: Hearing): Promise<void>;
  /** Rejects with `Untaken` when the server did not take this message and the line goes on; the end of the line is told by `closed`. */
  send(message: Envelope): Promise<void>;
  /** Both ends speak this revision from now on. */
  agreed(version: string): void;
  close(): Promise<void>;
}

/** The server did not take a message. The words say why. */
export class Untaken extends Error {
  override readonly name = "Untaken";
  readonly mayHaveRun: boolean;

  constructor(says: string, mayHaveRun: boolean, options?: ErrorOptions) {
    super(says, options);
    this.mayHaveRun = mayHaveRun;
  }
}

export class ChildLine implements Line {
  readonly #child: Child;
  readonly #transport: StdioTransport;

  constructor(child: Child, stray: (line: string) => void) {
    this.#child = child;
    this.#transport = new StdioTransport(child, stray, readEnvelope as never);
  }

  get end(): string | null {
    return this.#transport.end;
  }

  get waitingBytes(): number {
    return this.#child.stdin.writableLength;
  }

  async start(hearing: Hearing): Promise<void> {
    this.#transport.onmessage = (message) => hearing.message(message as Envelope);
    this.#transport.onclose = () => hearing.closed();
    await this.#transport.start();
  }

  send(message: Envelope): Promise<void> {
    return this.#transport.send(message as never);
  }

  agreed(): void {}

  close(): Promise<void> {
    return this.#transport.close();
  }
}
