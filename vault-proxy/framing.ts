// Where a request's body ends, as every reader of it would say.
//
//   F1  An encoding of the transfer that is not simply `chunked` is refused before anything is done: the parser lets such a request begin, and finds out
//       later that it can't tell where it ends.

import type { IncomingMessage } from "node:http";

export function isFramedOddly({ headers }: IncomingMessage): boolean {
  const encoding = headers["transfer-encoding"];
  return encoding !== undefined && (encoding.toLowerCase() !== "chunked" || headers["content-length"] !== undefined);
}
