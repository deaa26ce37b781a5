// The directory of hand hosts (hands/directory.ts), over the embedded store and a small server in the hand host's place.

import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { HandHosts } from "../../hands/directory.ts";
import { mintProbe } from "../../hands/registry.ts";
import { mintSession, type SessionId } from "../../session-store/ids.ts";
import { openStore } from "../../session-store/open.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { until } from "../support/until.ts";

const log = pino({ level: "silent" });
let folder: string;
let store: SessionStore;
let server: Server;
let boot: number;
let hosts: HandHosts[];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "manyhands-directory-"));
  store = await openStore({ dataDir: folder, leaseMs: 1_000, log });
  boot = 1;
  hosts = [];
  server = createServer((_, answer) => void answer.end(JSON.stringify({ status: "ok", id: "host_one", boot })));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
});
afterEach(async () => {
  for (const each of hosts) await each.stop();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await store.close();
  await rm(folder, { recursive: true, force: true });
});

const address = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
function directory(url = address()): HandHosts {
  const made = new HandHosts({ store, url, log });
  hosts.push(made);
  return made;
}
const nothing = { instances: async () => [], release: async () => {} };

describe("the directory of hand hosts", () => {
  test("another node finds a host that was announced, and its newer boot after a restart", async () => {
    directory().start(nothing);
    const other = directory("http://127.0.0.1:9");
    const seen = await until(() => other.resolve("host_one").catch(() => null));
    expect(seen).toEqual({ url: address(), boot: 1 });
    boot = 2;
    directory().start(nothing);
    await until(async () => (await other.resolve("host_one")).boot === 2);
  });

  test("the own host is found before its first announcement", async () => {
    expect(await directory().resolve("host_one")).toEqual({ url: address(), boot: 1 });
  });

  test("a host that nobody knows is refused as lost", async () => {
    await expect(directory().resolve("host_other")).rejects.toMatchObject({ code: "hand_lost" });
    await expect(directory("http://127.0.0.1:9").resolve("host_other")).rejects.toMatchObject({ code: "hand_lost" });
  });

  test("a hand whose session is gone is released", async () => {
    const session = mintSession();
    const released: SessionId[] = [];
    const hands = { instances: async () => [{ hand: "hand_one", session }], release: async (gone: SessionId) => void released.push(gone) };
    directory().start(hands);
    expect(await until(() => released[0])).toBe(session);
  });

  test("a server that is being looked at is not taken from whoever looks", async () => {
    const [probe, gone] = [mintProbe(), mintSession()];
    const released: SessionId[] = [];
    const hands = {
      instances: async () => [
        { hand: "hand_looked_at", session: probe },
        { hand: "hand_left", session: gone },
      ],
      release: async (session: SessionId) => void released.push(session),
    };
    directory().start(hands);
    await until(() => released.length > 0);
    expect(released).toEqual([gone]);
  });
});
