// Listening (gateway/listen.ts): patience for a port, and a clear word when it ends.

import { createServer, type Server, type ServerResponse } from "node:http";
import { connect } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { harden, inTurn, listen } from "../../gateway/listen.ts";
import { until } from "../support/until.ts";

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

describe("requests that are sent before the one before them was answered", () => {
  async function pipelined(count: number) {
    const begun: { readonly url: string; readonly response: ServerResponse }[] = [];
    const made = createServer(
      inTurn(({ url = "" }, response) => {
        begun.push({ url, response });
        if (url !== "/0") response.end(url);
      }),
    );
    servers.push(made);
    const port = await listen(made, "127.0.0.1", 0);
    const client = connect(port, "127.0.0.1");
    let heard = "";
    let isOver = false;
    client
      .on("data", (chunk) => {
        heard += String(chunk);
      })
      .on("error", () => {})
      .on("close", () => {
        isOver = true;
      });
    client.write(Array.from({ length: count }, (_, at) => `GET /${at} HTTP/1.1\r\nhost: here\r\n\r\n`).join(""));
    await until(() => begun.length === 1);
    return { begun, client, heard: () => heard, isOver: () => isOver };
  }

  test("begin one after the other, in their order", async () => {
    const { begun, client, heard } = await pipelined(3);
    expect(begun.map(({ url }) => url)).toEqual(["/0"]);
    begun[0]?.response.end("/0");
    await until(() => heard().includes("/2"));
    expect(begun.map(({ url }) => url)).toEqual(["/0", "/1", "/2"]);
    client.destroy();
  });

  test("never begin when their client has gone away", async () => {
    const { begun, client } = await pipelined(3);
    client.destroy();
    await until(() => begun[0]?.response.destroyed === true);
    begun[0]?.response.end();
    expect(begun).toHaveLength(1);
  });

  test("end the connection where they are too many", async () => {
    const { begun, isOver } = await pipelined(100);
    await until(isOver);
    expect(begun).toHaveLength(1);
  });
});
