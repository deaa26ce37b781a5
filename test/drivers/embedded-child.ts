// A process with an embedded store, to be killed: it appends batches to several sessions at once and says which ones were acknowledged.

import { writeSync } from "node:fs";
import { openEmbeddedStore } from "../../session-store/drivers/embedded/driver.ts";
import { mintEvent, mintSession } from "../../session-store/ids.ts";

const SESSIONS = 4;
const APPENDS = 250;
const BATCH = 3;

const [dir, task] = process.argv.slice(2);
if (!dir) throw new Error("usage: embedded-child <folder> hold|append");
const store = await openEmbeddedStore({ dir, leaseMs: 30_000 });
/** A line on standard output, written before anything else happens. */
const say = (line: unknown) => writeSync(1, `${JSON.stringify(line)}\n`);
const text = (words: string) => [{ type: "text" as const, text: words }];

if (task === "append") {
  const created = {
    type: "log.created" as const,
    workspace: "default",
    agent: {
      type: "agent" as const,
      id: "agent_1",
      version: 1,
      name: "Ada",
      description: null,
      model: { id: "claude-test" },
      system: null,
      tools: [],
      mcp_servers: [],
      skills: [],
      multiagent: null,
    },
    environment_id: "env_1",
    title: null,
    metadata: {},
    resources: [],
    vault_ids: [],
  };
  await Promise.all(
    Array.from({ length: SESSIONS }, async () => {
      const id = mintSession();
      const event = { id: mintEvent(), type: "user.message" as const, content: text("go") };
      await store.create({ id, created, entries: [{ type: "log.received", event, waits: true }] });
    }),
  );
  await Promise.all(
    Array.from({ length: SESSIONS }, async (_, taker) => {
      const lease = await store.take("http://127.0.0.1:1", `nonce_${taker}`);
      if (!lease) throw new Error("nothing is due");
      for (let n = 1; n <= APPENDS; n++) {
        const words = Array.from({ length: BATCH }, (_, index) => `${n}.${index}`);
        const stored = await store.emitEvents(
          lease,
          n,
          words.map((word) => ({ id: mintEvent(), type: "agent.message" as const, content: text(word) })),
        );
        say({ id: lease.id, n, positions: stored.map(({ position }) => position) });
      }
    }),
  );
}
say("ready");
// The store's thread keeps the process alive until it is killed.
