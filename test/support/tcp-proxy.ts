// A TCP proxy that cuts or swallows: the server has executed what came through, and the client never sees the answer.

import { once } from "node:events";
import { createConnection, createServer, type Socket } from "node:net";

export interface TcpProxy {
  readonly port: number;
  /** How many connections were cut. */
  readonly cuts: number;
  /** Cuts the connection that brings the next answer for which `pick` says yes, instead of passing the answer on. */
  cutAnswers(pick: (answer: Buffer, asked: Buffer) => boolean): void;
  /** Swallows what the server says where `pick` says yes; the connection stays. */
  swallowAnswers(pick: (answer: Buffer) => boolean): void;
  /** How many answers were swallowed. */
  readonly swallowed: number;
  /** From now on nothing is cut and nothing swallowed. */
  passAll(): void;
  /** Cuts every connection that is open; new ones pass. */
  cutAll(): void;
  close(): Promise<void>;
}

/** `idleMs`: connections on which nothing passes for so long are cut, too. */
export async function startTcpProxy(targetPort: number, { idleMs }: { readonly idleMs?: number } = {}): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  let pick: ((answer: Buffer, asked: Buffer) => boolean) | null = null;
  let cuts = 0;
  let isSwallowed: ((answer: Buffer) => boolean) | null = null;
  let swallowed = 0;

  const server = createServer((client) => {
    const target = createConnection(targetPort, "127.0.0.1");
    let asked: Buffer = Buffer.alloc(0);
    const cut = () => {
      client.destroy();
      target.destroy();
    };
    if (idleMs !== undefined)
      client.setTimeout(idleMs, () => {
        cuts += 1;
        cut();
      });
    for (const socket of [client, target]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", cut);
      socket.on("close", () => {
        sockets.delete(socket);
        cut();
      });
    }
    client.on("data", (chunk) => {
      asked = chunk;
      target.write(chunk);
    });
    target.on("data", (chunk) => {
      if (pick?.(chunk, asked)) {
        cuts += 1;
        return cut();
      }
      if (isSwallowed?.(chunk)) swallowed += 1;
      else client.write(chunk);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");

  return {
    port: address.port,
    get cuts() {
      return cuts;
    },
    cutAnswers: (next) => {
      pick = next;
    },
    swallowAnswers: (next) => {
      isSwallowed = next;
    },
    get swallowed() {
      return swallowed;
    },
    passAll: () => {
      pick = null;
      isSwallowed = null;
    },
    cutAll: () => {
      for (const socket of sockets) socket.destroy();
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
