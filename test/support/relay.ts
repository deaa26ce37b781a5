// Hands in the registry, as a test wants them.

import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pino from "pino";
import { HAND_KIND, RegisteredHand } from "../../hands/registry.ts";
import type { Documents } from "../../session-store/documents.ts";
import { openStore } from "../../session-store/open.ts";

export type HandFields = Partial<Omit<RegisteredHand, "transport">> & { readonly name: string; readonly url: string };

export function handOf({ url, ...fields }: HandFields): RegisteredHand {
  return RegisteredHand.parse({
    description: "",
    transport: { type: "http", url },
    sharing: "shared",
    vault_ids: [],
    allowed_tools: null,
    timeouts: { connect_ms: null, idle_ms: null, total_ms: null },
    tools: null,
    held_back: [],
    health: { status: "unknown", checked_at: null, error: null, server: null, protocol_version: null },
    ...fields,
  });
}

/** Registers a hand, or changes one. */
export async function registerHand(documents: Documents, fields: HandFields, workspace = "default"): Promise<void> {
  const before = await documents.get(workspace, HAND_KIND, fields.name);
  await documents.put(workspace, [{ kind: HAND_KIND, id: fields.name, body: handOf(fields), replaces: before?.revision ?? 0 }]);
}

/** The same in a store that other processes use. */
export async function putHand({ redisUrl }: { redisUrl: string }, fields: HandFields): Promise<void> {
  const dataDir = await mkdtemp(join(tmpdir(), "manyhands-hand-"));
  const store = await openStore({ redisUrl, dataDir, leaseMs: 30_000, log: pino({ level: "silent" }) });
  await registerHand(store, fields);
  await store.close();
}
