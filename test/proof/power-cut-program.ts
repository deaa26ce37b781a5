// The two programs of the power-cut proof, run from built JavaScript.
//
//   node power-cut-program.js write <data folder> <name of this run> [redis url]
//     writes to a session store as fast as it may, and says on stdout what the store acknowledged, after it did. It is killed at some moment:
//     whatever it said must be there afterwards.
//   node power-cut-program.js read <data folder> <name of a run, or all> [redis url]
//     says what a fresh store has, then drives what is due to its end, and says which sessions did not get there.

import { pino } from "pino";
import type { Lease } from "../../session-store/due.ts";
import type { BrainEntry, OutsideEntry, Stored } from "../../session-store/entry.ts";
import type { AgentSnapshot } from "../../session-store/events/log.ts";
import type { SessionId } from "../../session-store/ids.ts";
import { mintEvent, mintSession, position } from "../../session-store/ids.ts";
import { openStore } from "../../session-store/open.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionRecord } from "../../session-store/session.ts";
import { pendingOf, titleOf } from "../../session-store/session.ts";
import type { SessionStore } from "../../session-store/store.ts";

const SESSIONS = 8;
const APPENDS_MAX = 4;
const ENTRIES_MAX = 5;
const FINISHES_MAX = 5;
const LEASE_MS = 1_000;
/** The test kills long before; without one the program ends by itself. */
const LIFE_MS = 30_000;
const DRAIN_MS = 15_000;
const DRAIN_POLL_MS = 50;
const PAGE = 100;

const AGENT: AgentSnapshot = {
  type: "agent",
  id: "agent_writer",
  version: 1,
  name: "writer",
  description: null,
  model: { id: "none" },
  system: null,
  tools: [],
  mcp_servers: [],
  skills: [],
  multiagent: null,
};

/** What the programs say, a JSON line each. */
export type Line =
  | { readonly type: "acknowledged"; readonly session: SessionId; readonly stored: readonly Stored[] }
  | { readonly type: "found"; readonly record: SessionRecord; readonly log: readonly Stored[] }
  | { readonly type: "drained"; readonly stuck: readonly SessionId[] };

const say = (line: Line) => process.stdout.write(`${JSON.stringify(line)}\n`);
const acknowledge = (session: SessionId, stored: readonly Stored[]) => say({ type: "acknowledged", session, stored });

const message = (text: string): OutsideEntry => ({
  type: "log.received",
  event: { id: mintEvent(), type: "user.message", content: [{ type: "text", text }] },
  waits: true,
});

const note = (text: string): BrainEntry => ({ type: "log.note", harness: "writer", data: { text } });

/** One turn under a lease: what waits is applied, notes are written, the turn ends; what comes meanwhile is applied too. */
async function drive(store: SessionStore, lease: Lease, name: string): Promise<void> {
  let n = 0;
  const emit = async (entries: readonly BrainEntry[]) => {
    n += 1;
    acknowledge(lease.id, await store.emitEvents(lease, n, entries));
  };
  for (let tries = 0; tries < FINISHES_MAX; tries += 1) {
    const record = await store.getSession(lease.id);
    const applied = pendingOf(record.projection).map(({ position, id }): BrainEntry => ({ type: "log.applied", ref: position, id }));
    if (applied.length > 0) await emit(applied);
    const appends = 1 + Math.floor(Math.random() * APPENDS_MAX);
    for (let index = 0; index < appends; index += 1)
      await emit(Array.from({ length: 1 + Math.floor(Math.random() * ENTRIES_MAX) }, (_, at) => note(`${name} ${lease.fence}.${n}.${at}`)));
    const { head } = await store.getSession(lease.id);
    const isMissed = (await store.getEvents(lease.id, { after: record.head })).some(({ entry }) => entry.type === "log.received");
    if (isMissed) continue;
    const ended = await store.finish(lease, n + 1, head, [
      { type: "session.status_idle", id: mintEvent(), stop_reason: { type: "end_turn" }, stop_details: null },
    ]);
    if (ended === "more") continue;
    acknowledge(lease.id, ended);
    return;
  }
  acknowledge(lease.id, await store.release(lease, n + 1, [note(`${name} released ${lease.fence}`)], 0));
}

async function work(store: SessionStore, name: string, until: number): Promise<void> {
  const id = mintSession();
  await store.create({
    id,
    created: {
      type: "log.created",
      workspace: "default",
      agent: AGENT,
      environment_id: "env_writer",
      title: name,
      metadata: {},
      resources: [],
      vault_ids: [],
    },
    entries: [],
  });
  acknowledge(id, await store.getEvents(id));
  for (let round = 0; Date.now() < until; round += 1) {
    const received = await store.receive(id, [message(`${name} ${id} ${round}`)]);
    if (received !== "moved") acknowledge(id, received);
    const lease = await store.take("power-cut-writer", `${name} ${id} ${round}`);
    if (lease) await driveOrYield(store, lease, name);
  }
}

/** A lease that ran out under a slow machine is no fault: the next take goes on. */
async function driveOrYield(store: SessionStore, lease: Lease, name: string): Promise<void> {
  try {
    await drive(store, lease, name);
  } catch (error) {
    if (!(error instanceof Refusal && error.code === "fenced")) throw error;
  }
}

async function sessionsOf(store: SessionStore, name: string): Promise<readonly SessionRecord[]> {
  const records: SessionRecord[] = [];
  for (;;) {
    const last = records.at(-1);
    const page = await store.listSessions("default", { order: "asc", limit: PAGE, ...(last && { beyond: last }) });
    records.push(...page);
    if (page.length < PAGE) return records.filter((record) => name === "all" || titleOf(record) === name);
  }
}

async function read(store: SessionStore, name: string): Promise<void> {
  for (const record of await sessionsOf(store, name)) {
    const log: Stored[] = [];
    while (log.length < record.head) {
      const page = await store.getEvents(record.id, { after: position(log.length) });
      if (page.length === 0) break;
      log.push(...page);
    }
    say({ type: "found", record, log });
  }
  const deadline = Date.now() + DRAIN_MS;
  let stuck: readonly SessionRecord[] = [];
  do {
    const nonce = mintEvent();
    const lease = await store.take("power-cut-reader", nonce);
    if (lease) await driveOrYield(store, lease, `drain ${nonce}`);
    else await new Promise((resolve) => setTimeout(resolve, DRAIN_POLL_MS));
    if (lease) continue;
    stuck = (await sessionsOf(store, "all")).filter((record) => record.dueAt !== null || pendingOf(record.projection).length > 0);
    if (stuck.length === 0) break;
  } while (Date.now() < deadline);
  say({ type: "drained", stuck: stuck.map(({ id }) => id) });
}

async function main(): Promise<void> {
  const [verb, dataDir = "", name = "", redisUrl] = process.argv.slice(2);
  const log = pino({ level: "error" }, pino.destination(2));
  const store = await openStore({ dataDir, leaseMs: LEASE_MS, log, ...(redisUrl === undefined ? {} : { redisUrl }) });
  try {
    if (verb === "read") await read(store, name);
    else await write(store, name);
  } finally {
    await store.close();
  }
}

async function write(store: SessionStore, name: string): Promise<void> {
  const until = Date.now() + LIFE_MS;
  try {
    await Promise.all(Array.from({ length: SESSIONS }, () => work(store, name, until)));
  } catch (error) {
    // The server went away under us: that is what its power cut looks like from here.
    if (!(error instanceof Refusal)) throw error;
    process.stderr.write(`refused: ${error.code}\n`);
  }
}

await main();
