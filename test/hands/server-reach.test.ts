// Which addresses a server may be at, and what becomes of redirects, floods and names that mean an internal address.

import { afterEach, expect, test } from "vitest";
import { kindOf } from "../../hands/address.ts";
import { Reach } from "../../hands/servers/reach.ts";
import { RawServer } from "../support/mcp/raw.ts";

const reaches: Reach[] = [];
const started: RawServer[] = [];
afterEach(async () => {
  await Promise.all(reaches.splice(0).map((reach) => reach.close()));
  await Promise.all(started.splice(0).map((server) => server.close()));
});
const reach = (...hosts: string[]): Reach => {
  const made = new Reach(hosts, 1_000);
  reaches.push(made);
  return made;
};
const serve = async (options: Parameters<typeof RawServer.start>[0] = {}): Promise<RawServer> => {
  const server = await RawServer.start(options);
  started.push(server);
  return server;
};
const whyNot = async (from: Reach, url: string): Promise<string> => {
  try {
    return String((await from.fetch(url, { method: "POST", body: "{}" })).status);
  } catch (error) {
    const messages: string[] = [];
    for (let at: unknown = error; at instanceof Error; at = at.cause) messages.push(at.message);
    return messages.join(": ");
  }
};

test.each([
  ["8.8.8.8", "public"],
  ["2606:4700:4700::1111", "public"],
  ["127.0.0.1", "internal"],
  ["10.1.2.3", "internal"],
  ["172.31.0.1", "internal"],
  ["192.168.1.1", "internal"],
  ["100.64.0.1", "internal"],
  ["0.0.0.0", "internal"],
  ["::1", "internal"],
  ["::", "internal"],
  ["fd00::1", "internal"],
  ["::ffff:10.0.0.1", "internal"],
  ["64:ff9b::7f00:1", "internal"],
  ["2002:7f00:1::", "internal"],
  ["169.254.169.254", "link_local"],
  ["::ffff:169.254.169.254", "link_local"],
  ["fe80::1", "link_local"],
])("%s is %s", (address, kind) => {
  expect(kindOf(address)).toBe(kind);
});

test("every spelling of an internal address is refused before anything is connected", async () => {
  const server = await serve();
  let connections = 0;
  server.onConnection(() => {
    connections += 1;
  });
  const none = reach();
  for (const host of ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"])
    expect(await whyNot(none, `http://${host}:${server.port}/mcp`), host).toContain("internal address");
  expect(connections).toBe(0);
});

test("a listed host is reached, by itself or with its port; what is link-local only by its own name", async () => {
  const server = await serve();
  const answered = "400";
  server.options.script = ({ response }) => {
    response.writeHead(Number(answered)).end();
    return true;
  };
  for (const list of [["127.0.0.1"], [`127.0.0.1:${server.port}`], ["*"]]) expect(await whyNot(reach(...list), server.url)).toBe(answered);
  expect(await whyNot(reach(`127.0.0.1:${server.port + 1}`), server.url)).toContain("internal address");
  expect(await whyNot(reach("localhost"), server.url)).toContain("internal address");
  expect(await whyNot(reach("localhost"), `http://localhost:${server.port}/mcp`)).toBe(answered);
  expect(await whyNot(reach("*"), "http://169.254.169.254/latest")).toContain("internal address");
});

test("no user name, no other scheme, no redirect that is followed", async () => {
  const target = await serve();
  const server = await serve({
    script: ({ response }) => {
      response.writeHead(307, { location: target.url }).end();
      return true;
    },
  });
  const all = reach("*");
  expect(await whyNot(all, `http://user:word@127.0.0.1:${server.port}/`)).toContain("user name");
  expect(await whyNot(all, "ftp://127.0.0.1/")).toContain("ftp:");
  expect(await whyNot(all, server.url)).toBe("307");
  expect(target.seen).toEqual([]);
});
