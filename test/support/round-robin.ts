// A small HTTP load balancer on loopback: each request goes to the next address, streams and all. For tests of several gateways.

import { createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";

const CONNECT_MS = 10_000;

export interface RoundRobin {
  readonly url: string;
  /** How many requests each address was given, in the order of the addresses. */
  counts(): readonly number[];
  close(): Promise<void>;
}

export async function startRoundRobin(addresses: readonly string[]): Promise<RoundRobin> {
  const targets = addresses.map((address) => new URL(address));
  const counts = targets.map(() => 0);
  let turn = 0;
  const server = createServer((incoming, answer) => {
    const at = turn++ % targets.length;
    const target = targets[at];
    if (!target) return void answer.writeHead(502).end();
    counts[at] = (counts[at] ?? 0) + 1;
    const options = { host: target.hostname, port: target.port, path: incoming.url, method: incoming.method, headers: incoming.headers };
    const outgoing = request({ ...options, timeout: CONNECT_MS }, (from) => {
      outgoing.setTimeout(0);
      answer.writeHead(from.statusCode ?? 502, from.headers);
      answer.flushHeaders();
      from.on("error", () => answer.destroy());
      from.pipe(answer);
    });
    outgoing.on("timeout", () => outgoing.destroy(new Error("no answer")));
    outgoing.on("error", () => (answer.headersSent ? answer.destroy() : answer.writeHead(502).end()));
    answer.on("close", () => outgoing.destroy());
    incoming.pipe(outgoing);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    counts: () => [...counts],
    close: () => closed(server),
  };
}

function closed(server: Server): Promise<void> {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(() => resolve()));
}
