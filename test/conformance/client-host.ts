// Plays the scenarios of the official conformance suite for the clients that it starts (client.ts): a few at a time, in one program that has loaded what
// they need. So a machine of two cores does not load it fifty times.

import { createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { Asked, playScenario } from "./client-scenarios.ts";

const AT_ONCE = 4;

const waiting: (() => Promise<void>)[] = [];
let playing = 0;

function next(): void {
  while (playing < AT_ONCE) {
    const play = waiting.shift();
    if (play === undefined) return;
    playing += 1;
    void play().finally(() => {
      playing -= 1;
      next();
    });
  }
}

async function serve(socket: Socket, asked: Asked): Promise<void> {
  const say = (said: object) => socket.write(`${JSON.stringify(said)}\n`);
  try {
    await playScenario(asked, (line) => say({ line }));
    say({ isOver: true });
  } catch (error) {
    say({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  }
  socket.end();
}

const server = createServer((socket) => {
  socket.on("error", () => {});
  createInterface({ input: socket }).once("line", (line) => {
    waiting.push(() => serve(socket, Asked.parse(JSON.parse(line))));
    next();
  });
}).listen(0, "127.0.0.1", () => process.stdout.write(`${JSON.stringify({ msg: "process.listening", address: server.address() })}\n`));
// Whoever started it ends, and so does it.
process.stdin.resume().once("end", () => process.exit());
