// The doors of hands in this process, over one real store: replicas that share nothing else.

import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { makeAuthenticate, WORKSPACE } from "../../../gateway/authenticate.ts";
import { Bodies } from "../../../gateway/http/body.ts";
import { Access } from "../../../gateway/mcp/access.ts";
import { makeCrossing } from "../../../gateway/relay/crossed/crossing.ts";
import { HandRelay } from "../../../gateway/relay/door.ts";
import { HAND_KIND, RegisteredHand } from "../../../hands/registry.ts";
import { openEmbeddedStore } from "../../../session-store/drivers/embedded/driver.ts";
import { openRedisStore } from "../../../session-store/drivers/redis/driver.ts";
import type { SessionStore } from "../../../session-store/store.ts";

/** Two callers. */
const KEYS = ["key-of-the-first-caller", "key-of-the-second-caller"] as const;
export const [FIRST, SECOND] = KEYS.map((key) => ({ authorization: `Bearer ${key}` })) as [{ authorization: string }, { authorization: string }];
const TIMES = { connectMs: 3_000, idleMs: 10_000, totalMs: 60_000 };

export interface RelayDoors {
  readonly store: SessionStore;
  readonly logged: readonly string[];
  /** The URL of a hand at a replica. */
  url(hand: string, replica?: number): string;
  /** Ends a replica as a stop does, and puts a new one in its place. */
  restart(replica: number): Promise<void>;
  register(hand: string, url: string, type?: "http" | "sse", sharing?: "shared" | "session"): Promise<void>;
  /** One of the older transport, whose calls may be silent for so long. */
  registerTimed(hand: string, url: string, idleMs: number): Promise<void>;
  registerStdio(hand: string, server: string, sharing?: "shared" | "session"): Promise<void>;
  close(): Promise<void>;
}

interface Options {
  readonly count?: number;
  readonly answerMs?: number;
  readonly redisUrl?: string;
  readonly handsUrl?: string;
  readonly handKey?: string;
}

export async function openRelayDoors({ count = 1, answerMs, redisUrl, handsUrl, handKey = "" }: Options = {}): Promise<RelayDoors> {
  const dir = await mkdtemp(join(tmpdir(), "manyhands-relay-"));
  const logged: string[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => void logged.push(line) });
  const openStore = () =>
    redisUrl === undefined ? openEmbeddedStore({ dir, leaseMs: 30_000 }) : openRedisStore({ url: redisUrl, leaseMs: 30_000, log });
  const shared = await openStore();
  const open = async () => {
    // Each replica over Redis has connections of its own, as a process has.
    const store = redisUrl === undefined ? shared : await openStore();
    const own = { url: "" };
    const authenticate = makeAuthenticate(KEYS);
    const access = new Access({ authenticate, issuer: null, isOpen: false, resource: () => `${own.url}/mcp` });
    const crossing = makeCrossing({ store, stateKey: Buffer.alloc(32, 5), log, keepAliveMs: 1_000, ...(answerMs !== undefined && { answerMs }) });
    const relay = new HandRelay({
      handsUrl: handsUrl ?? null,
      handKey,
      vault: null,
      internalHosts: ["*"],
      times: TIMES,
      store,
      bodies: new Bodies(),
      log,
      keepAliveMs: 1_000,
      reach: { publicUrl: null, isLoopback: true },
      access,
      baseUrl: () => own.url,
      isOpen: false,
      crossing,
    });
    const server = createServer((request, response) => void relay.serve(request, response, (request.url ?? "").slice("/mcp/hands/".length)));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    own.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return { relay, server, url: own.url, store };
  };
  const end = async ({ relay, server, store }: { relay: HandRelay; server: Server; store: SessionStore }) => {
    await relay.close();
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
    if (store !== shared) await store.close();
  };
  const replicas = await Promise.all(Array.from({ length: count }, open));
  const put = async (
    name: string,
    transport: RegisteredHand["transport"],
    sharing: "shared" | "session" = "session",
    idleMs: number | null = null,
  ) => {
    const body = RegisteredHand.parse({
      name,
      description: "",
      transport,
      sharing,
      vault_ids: [],
      allowed_tools: null,
      timeouts: { connect_ms: null, idle_ms: idleMs, total_ms: null },
      tools: null,
      held_back: [],
      health: { status: "unknown", checked_at: null, error: null, server: null, protocol_version: null },
    });
    await shared.put(WORKSPACE, [{ kind: HAND_KIND, id: name, body, replaces: 0 }]);
  };
  return {
    store: shared,
    logged,
    url: (hand, replica = 0) => `${replicas[replica]?.url}/mcp/hands/${hand}`,
    async restart(replica) {
      const old = replicas[replica];
      if (old) await end(old);
      replicas[replica] = await open();
    },
    register: (hand, url, type = "http", sharing = "session") => put(hand, { type, url }, sharing),
    registerTimed: (hand, url, idleMs) => put(hand, { type: "sse", url }, "session", idleMs),
    registerStdio: (hand, server, sharing) => put(hand, { type: "stdio", server }, sharing),
    async close() {
      await Promise.all(replicas.map(end));
      await shared.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
