// A request's body on its way: what becomes of one whose caller leaves.

import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Replay } from "../../vault-proxy/replay.ts";

const server = createServer();
beforeAll(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});
afterAll(() => server.close());

/** A request of which two bytes of ten come, and the hanging up of its caller. */
async function halfRequest(): Promise<{ req: IncomingMessage; leave(): void }> {
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const came = once(server, "request");
  socket.write("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nab");
  const [req] = await came;
  return { req, leave: () => socket.destroy() };
}

test("whoever waits for a short body hears that its caller leaves", async () => {
  const { req, leave } = await halfRequest();
  const body = new Replay(req, 100, true).short();
  leave();
  await expect(body).rejects.toThrow();
});

test("whoever asks for a short body hears that its caller left before", async () => {
  const { req, leave } = await halfRequest();
  leave();
  await new Promise((resolve) => req.once("close", resolve));
  await expect(new Replay(req, 100, true).short()).rejects.toThrow("the caller left");
});
