// Taps: they pass on what two programs say to each other and keep it. What was kept is read twice: as the bytes that were there, and as HTTP, so that
// what was cut into chunks or packed is seen whole.
//
//   T1  Nothing is changed and nothing delayed. A tap that has heard more than it can keep says so: it counts for nothing then.
//   T2  What is handed to the vault proxy on purpose, secrets in the body of a request, is no leak; the answer is looked at like any other.

import { once } from "node:events";
import { rm } from "node:fs/promises";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { messagesOf } from "./http.ts";
import type { Piece } from "./search.ts";

const KEPT_BYTES_MAX = 512 * 1024 * 1024;
/** Requests to the vaults' API, and those that have tokens sealed. T2 */
const GIVES_SECRETS = /^POST \/(?:v1\/vaults\/|seal )/;

interface TapOptions {
  readonly name: string;
  readonly target: number | string;
  /** Where to listen, if it is no port. */
  readonly path?: string;
  /** T2 */
  readonly mayBringSecrets?: boolean;
}

export interface TapMessage {
  readonly first: Piece;
  readonly headers: Piece;
  readonly bodies: readonly Piece[];
  readonly isStream: boolean;
}

interface Line {
  readonly asked: Buffer[];
  readonly said: Buffer[];
}

export class Tap {
  readonly name: string;
  readonly port: number;
  readonly #lines: Line[];
  readonly #mayBringSecrets: boolean;
  readonly #close: () => Promise<void>;

  private constructor(options: TapOptions, port: number, lines: Line[], close: () => Promise<void>) {
    this.name = options.name;
    this.port = port;
    this.#lines = lines;
    this.#mayBringSecrets = options.mayBringSecrets ?? false;
    this.#close = close;
  }

  static async open(options: TapOptions): Promise<Tap> {
    const lines: Line[] = [];
    const sockets = new Set<Socket>();
    let bytes = 0;
    const server = createServer({ allowHalfOpen: true }, (near) => {
      const line: Line = { asked: [], said: [] };
      lines.push(line);
      const far = connect({
        ...(typeof options.target === "string" ? { path: options.target } : { port: options.target, host: "127.0.0.1" }),
        allowHalfOpen: true,
      });
      for (const [from, to, kept] of [
        [near, far, line.asked],
        [far, near, line.said],
      ] as const) {
        sockets.add(from);
        from.on("data", (piece: Buffer) => {
          bytes += piece.length;
          if (bytes <= KEPT_BYTES_MAX) kept.push(piece);
        });
        from.pipe(to);
        from.on("error", () => to.destroy());
        from.on("close", () => {
          sockets.delete(from);
          to.destroySoon();
        });
      }
    });
    server.listen(options.path ?? { port: 0, host: "127.0.0.1" });
    await once(server, "listening");
    const port = options.path === undefined ? (server.address() as AddressInfo).port : 0;
    return new Tap(options, port, lines, async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      if (options.path !== undefined) await rm(options.path, { force: true });
      if (bytes > KEPT_BYTES_MAX) throw new Error(`The tap ${options.name} heard more than it could keep.`);
    });
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** How many bytes passed. */
  get heard(): number {
    return this.#lines.reduce((sum, { asked, said }) => [...asked, ...said].reduce((bytes, piece) => bytes + piece.length, sum), 0);
  }

  /** What was said, as bytes. */
  *bytes(): Generator<Piece> {
    for (const { asked, said } of this.#lines) {
      if (!this.#mayBringSecrets) yield { place: `${this.name}, asked`, bytes: Buffer.concat(asked) };
      yield { place: `${this.name}, answered`, bytes: Buffer.concat(said) };
    }
  }

  /** What was said, as messages: first lines, headers, and whole, unpacked bodies. T2 */
  *messages(): Generator<TapMessage> {
    for (const { asked, said } of this.#lines)
      for (const [side, pieces] of [
        ["asked", asked],
        ["answered", said],
      ] as const)
        for (const { first, headers, bodies, isStream } of messagesOf(Buffer.concat(pieces))) {
          const place = `${this.name}, ${side}`;
          const isGiving = this.#mayBringSecrets && side === "asked" && GIVES_SECRETS.test(first.toString("latin1"));
          const shown = isGiving ? [] : bodies.map((bytes) => ({ place, bytes }));
          yield { first: { place, bytes: first }, headers: { place, bytes: headers }, bodies: shown, isStream };
        }
  }

  close(): Promise<void> {
    return this.#close();
  }
}
