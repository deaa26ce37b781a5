// The line between a hand host and its container engine, in other hands: it can be cut, fall silent, or say what nobody can read.

import { mkdtemp, rm } from "node:fs/promises";
import { createConnection, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ENGINE_SOCKET } from "./real-part.ts";

/** `garbage`: what the engine says is replaced; `odd`: it answers, in good form, what is no answer. */
type LineState = "good" | "cut" | "silent" | "garbage" | "odd";

export interface EngineLine {
  readonly socketPath: string;
  /** From now on; what is under way is met by it too. */
  set(state: LineState): void;
  close(): Promise<void>;
}

const ODD_BODY = '{"surprise":[1,2,3]}';
const ODD = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${ODD_BODY.length}\r\n\r\n${ODD_BODY}`;
const GARBAGE = Buffer.from(Array.from({ length: 64 }, (_, at) => (at * 37 + 5) % 251));

export async function openEngineLine(): Promise<EngineLine> {
  const folder = await mkdtemp(join(tmpdir(), "engine-line-"));
  const socketPath = join(folder, "engine.sock");
  const pairs = new Set<readonly [Socket, Socket]>();
  let state: LineState = "good";
  const held: (() => void)[] = [];
  /** While it is silent nothing passes, and nothing is lost. */
  const pass = (from: Socket, to: Socket, change: (chunk: Buffer) => Buffer | string) => {
    from.on("data", (chunk: Buffer) => {
      const go = () => void (to.destroyed || to.write(change(chunk)));
      if (state === "silent") held.push(go);
      else go();
    });
    from.on("end", () => (state === "silent" ? held.push(() => to.end()) : to.end()));
  };
  const server = createServer({ allowHalfOpen: true }, (inside) => {
    if (state === "cut") return void inside.destroy();
    const outside = createConnection({ path: ENGINE_SOCKET, allowHalfOpen: true });
    const pair = [inside, outside] as const;
    pairs.add(pair);
    pass(inside, outside, (chunk) => chunk);
    pass(outside, inside, (chunk) => (state === "garbage" ? GARBAGE : state === "odd" ? ODD : chunk));
    for (const [one, other] of [pair, [outside, inside] as const]) {
      one.on("error", () => other.destroy());
      one.on("close", () => {
        other.destroy();
        pairs.delete(pair);
      });
    }
  });
  const cut = () => {
    for (const pair of pairs) for (const socket of pair) socket.destroy();
  };
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    socketPath,
    set(next) {
      state = next;
      if (next === "cut") cut();
      if (next === "silent") return;
      for (const go of held.splice(0)) go();
    },
    async close() {
      state = "cut";
      cut();
      await new Promise((resolve) => server.close(resolve));
      await rm(folder, { recursive: true, force: true });
    },
  };
}
