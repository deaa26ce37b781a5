// A durable append, as the host of a brain does it: one entry of 1 KB under a lease, and 32 sessions at once.

import type { Logger } from "pino";
import type { Lease } from "../../session-store/due.ts";
import type { BrainEntry } from "../../session-store/entry.ts";
import type { AgentSnapshot } from "../../session-store/events/log.ts";
import { mintEvent, mintSession } from "../../session-store/ids.ts";
import { openStore } from "../../session-store/open.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { times } from "./figures.ts";

const AGENT: AgentSnapshot = {
  type: "agent",
  id: "agent_bench",
  version: 1,
  name: "bench",
  description: null,
  model: { id: "scripted-model" },
  system: null,
  tools: [],
  mcp_servers: [],
  skills: [],
  multiagent: null,
};
const TOGETHER = 32;
const PAGE = 500;

export interface AppendFigures {
  readonly one: readonly number[];
  /** Appends a second with 32 sessions at once. */
  readonly togetherPerSecond: number;
  /** Replay of 10,000 entries, in ms. */
  readonly replayMs: number;
}

export async function measureAppends(place: { redisUrl?: string; dataDir: string }, n: number, log: Logger): Promise<AppendFigures> {
  const store = await openStore({ ...place, leaseMs: 600_000, log });
  try {
    const lease = await leased(store);
    let count = 0;
    const append = (held: Lease, at: number) => store.emitEvents(held, at, [kilobyte()]);
    const one = await times(n, async () => {
      count += 1;
      await append(lease, count);
      return undefined;
    });

    const leases: Lease[] = [];
    while (leases.length < TOGETHER) leases.push(await leased(store));
    const rounds = Math.max(10, Math.floor(n / 10));
    const started = performance.now();
    await Promise.all(
      leases.map(async (held) => {
        for (let i = 1; i <= rounds; i += 1) await append(held, i);
      }),
    );
    const togetherPerSecond = (rounds * TOGETHER) / ((performance.now() - started) / 1000);

    const long = await leased(store);
    for (let i = 1; i <= 100; i += 1) await store.emitEvents(long, i, Array.from({ length: 100 }, kilobyte));
    const from = performance.now();
    for (let page = await store.getEvents(long.id, { limit: PAGE }); page.length > 0; ) {
      const last = page.at(-1);
      page = last ? await store.getEvents(long.id, { after: last.position, limit: PAGE }) : [];
    }
    return { one, togetherPerSecond, replayMs: performance.now() - from };
  } finally {
    await store.close();
  }
}

/** A new session that was told something, taken. Nothing else may be due. */
export async function leased(store: SessionStore): Promise<Lease> {
  const id = mintSession();
  const created = {
    type: "log.created" as const,
    workspace: "bench",
    agent: AGENT,
    environment_id: "env_bench",
    title: null,
    metadata: {},
    resources: [],
    vault_ids: [],
  };
  const event = { id: mintEvent(), type: "user.message" as const, content: [{ type: "text" as const, text: "hi" }] };
  await store.create({ id, created, entries: [{ type: "log.received", event, waits: true }] });
  for (;;) {
    const lease = await store.take("bench", mintEvent());
    if (lease?.id === id) return lease;
    if (lease === null) throw new Error("The session that was just made is not due.");
  }
}

export function kilobyte(): BrainEntry {
  return { id: mintEvent(), type: "agent.message", content: [{ type: "text", text: "a".repeat(900) }] };
}
