// The one way out of a container: programs in it connect to a port of their own loopback, and this pipes them to the socket that the hand host put there.
//
//   W1  Where nothing answers at the socket, a connection is closed at once. At most CONNECTIONS_MAX at a time; more are closed.

import { createConnection, createServer, type Socket } from "node:net";
import { DOOR_PORT, DOOR_SOCKET } from "../protocol.ts";

const CONNECTIONS_MAX = 64;

export function openDoor(): void {
  const server = createServer({ allowHalfOpen: true }, (inside) => {
    const outside = createConnection({ path: DOOR_SOCKET, allowHalfOpen: true });
    join(inside, outside);
    join(outside, inside);
  });
  server.maxConnections = CONNECTIONS_MAX;
  // Without its port a container has no way out, and works all the same.
  server.on("error", (error) => process.stderr.write(`the door can't be opened: ${error.message}\n`));
  server.listen(DOOR_PORT, "127.0.0.1");
}

function join(from: Socket, to: Socket): void {
  from.pipe(to);
  from.on("error", () => to.destroy());
  from.on("close", () => to.destroy());
}
