// Where a request's body ends, as every reader of it would say; and when the next one begins.
//
//   F1  An encoding of the transfer that is not simply `chunked` is refused before anything is done: the parser lets such a request begin, and finds out
//       later that it can't tell where it ends.
//   F2  A request that was sent before the one before it was answered begins when that answer is over. Begun at once, one connection would be as many as its
//       caller likes, and none of those would hear that it was cut.

import type { IncomingMessage, RequestListener } from "node:http";
import type { Socket } from "node:net";

/** Requests of one connection that wait for the answers before them; more end it. */
const WAITING_MAX = 64;

export function isFramedOddly({ headers }: IncomingMessage): boolean {
  const encoding = headers["transfer-encoding"];
  return encoding !== undefined && (encoding.toLowerCase() !== "chunked" || headers["content-length"] !== undefined);
}

/** F2 */
export function inTurn(serve: RequestListener): RequestListener {
  const waiting = new WeakMap<Socket, number>();
  return (req, res) => {
    if (res.socket) return void serve(req, res);
    const { socket } = req;
    const count = (waiting.get(socket) ?? 0) + 1;
    waiting.set(socket, count);
    if (count > WAITING_MAX) return void socket.destroy();
    res.once("socket", () => {
      waiting.set(socket, (waiting.get(socket) ?? 1) - 1);
      void serve(req, res);
    });
  };
}
