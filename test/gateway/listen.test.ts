// Listening (gateway/listen.ts): patience for a port, and a clear word when it ends.

import { createServer, type Server } from "node:http";
import { afterEach, describe, expect, test } from "vitest";
import { harden, listen } from "../../gateway/listen.ts";

const servers: Server[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

function server(): Server {
  const made = createServer((_, answer) => void answer.end("ok"));
  harden(made);
  servers.push(made);
  return made;
}

describe("listening", () => {
  test("a free port is found, and told", async () => {
    const port = await listen(server(), "127.0.0.1", 0);
    expect(await (await fetch(`http://127.0.0.1:${port}`)).text()).toBe("ok");
  });

  test("a port that becomes free in time is taken", async () => {
    const first = server();
    const port = await listen(first, "127.0.0.1", 0);
    const second = listen(server(), "127.0.0.1", port, 5_000);
    await new Promise((resolve) => first.close(resolve));
    expect(await second).toBe(port);
    servers.shift();
  });

  test("a port that stays taken is named with its setting", async () => {
    const port = await listen(server(), "127.0.0.1", 0);
    await expect(listen(server(), "127.0.0.1", port, 0)).rejects.toThrow(`Port ${port} on 127.0.0.1 is taken`);
    servers.pop();
  });

  test("an address that is not this machine's is named with its setting", async () => {
    await expect(listen(server(), "192.0.2.1", 0)).rejects.toThrow("MANYHANDS_HOST");
    servers.pop();
  });
});
