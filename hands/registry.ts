// Registered hands: MCP servers that somebody named once, for everyone of a workspace to use. A hand is a document; its name is its id.
//
//   W1  A record holds no secret: a credential is named by the vaults that hold it.
//   W2  What was approved of a server's tools is pinned here by hash; what a server says later is held against it (pins.ts).
//   W3  A change is made to the record as it is in the store: what came between is read, and the change made anew.

import { z } from "zod";
import type { Documents } from "../session-store/documents.ts";
import { mint, type SessionId } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";

/** The documents' kind. */
export const HAND_KIND = "hand";
/** In an agent's `mcp_servers`, the address of a registered hand: `hand:<name>`. */
export const HAND_ADDRESS = /^hand:([a-z0-9][a-z0-9_-]{0,62})$/;
export const HandName = z.string().regex(/^[a-z0-9][a-z0-9_-]{0,62}$/, "must be 1 to 63 lower-case letters, digits, hyphens and underscores");

const PinnedTool = z.object({
  name: z.string(),
  description: z.string(),
  input_schema: z.record(z.string(), z.unknown()),
  annotations: z.record(z.string(), z.unknown()).optional(),
  hash: z.string(),
});

/** An approved tool. */
export type PinnedTool = z.infer<typeof PinnedTool>;

export const RegisteredHand = z.object({
  name: HandName,
  /** `file`: it is there because the operator's file names it. Absent: somebody registered it. */
  source: z.enum(["api", "file"]).optional(),
  /** Of the request that registered it, until its registration is changed. */
  digest: z.string().optional(),
  description: z.string(),
  /** `stdio`: a server of the operator's file, by its name there; nobody else brings a command. */
  transport: z.discriminatedUnion("type", [
    z.object({ type: z.literal("http"), url: z.string() }),
    z.object({ type: z.literal("sse"), url: z.string() }),
    z.object({ type: z.literal("stdio"), server: z.string() }),
  ]),
  /** One connection for all, or one for each session. */
  sharing: z.enum(["shared", "session"]),
  /** Whose credential for this address is used; first match wins. */
  vault_ids: z.array(z.string()),
  /** Null: all. */
  allowed_tools: z.array(z.string()).nullable(),
  /** Milliseconds; null: the hand host's own. */
  timeouts: z.object({ connect_ms: z.number().nullable(), idle_ms: z.number().nullable(), total_ms: z.number().nullable() }),
  /** The list as it was approved; null: none was read yet. W2 */
  tools: z.array(PinnedTool).nullable(),
  /** Tools whose definition is another than the approved one, or that are new since: held back until somebody approves. */
  held_back: z.array(PinnedTool.extend({ reason: z.enum(["changed", "new", "suspicious"]), says: z.string().optional() })),
  /** Approved tools, by name, that the server did not list when it was last asked: they come back as they were, or are held back. */
  missing: z.array(z.string()).optional(),
  health: z.object({
    status: z.enum(["unknown", "ready", "failed"]),
    checked_at: z.number().nullable(),
    error: z.string().nullable(),
    server: z.object({ name: z.string(), version: z.string() }).nullable(),
    protocol_version: z.string().nullable(),
  }),
  /** Since when every look at the server failed; null or absent: the last one did not. */
  failing_since: z.number().nullable().optional(),
});
export type RegisteredHand = z.infer<typeof RegisteredHand>;

const PROBE = "sesn_probe";

/** A session that nobody has, under which a server is looked at. */
export const mintProbe = (): SessionId => `${PROBE}${mint("x").slice(2)}` as SessionId;
export const isProbe = (session: SessionId): boolean => session.startsWith(PROBE);

/** Null: no hand of this name is registered in the workspace. */
export async function findHand(documents: Documents, workspace: string, name: string): Promise<RegisteredHand | null> {
  const found = await documents.get(workspace, HAND_KIND, name);
  return found === null || found.isArchived ? null : RegisteredHand.parse(found.body);
}

/** A change that came between is met by reading again: so many tries. */
const WRITE_TRIES_MAX = 10;

/** Changes a record; `change` gives null for "as it is". Null: no hand of this name is registered. W3 */
export async function changeHand(
  documents: Documents,
  workspace: string,
  name: string,
  change: (record: RegisteredHand) => RegisteredHand | null,
): Promise<RegisteredHand | null> {
  for (let tries = 0; tries < WRITE_TRIES_MAX; tries += 1) {
    const found = await documents.get(workspace, HAND_KIND, name);
    if (found === null || found.isArchived) return null;
    const before = RegisteredHand.parse(found.body);
    const after = change(before);
    if (after === null) return before;
    try {
      await documents.put(workspace, [{ kind: HAND_KIND, id: name, body: after, replaces: found.revision }]);
      return after;
    } catch (error) {
      if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
    }
  }
  throw new Refusal("store_busy");
}
