// Registered hands as servers of a session: `hand:<name>` in an agent means what the workspace's registry says under that name.
//
//   H1  The registration is read when it is needed and never kept: what was changed, removed or held back counts from the next look on.
//   H2  An address in the log (`hand:<name>#<mark>`) carries a mark of how the hand was reached: another mark is another connection.
//   H3  A name that nobody registered is one of the operator's file; the hand host alone knows those.

import { createHash } from "node:crypto";
import type { ServerWanted } from "../hands/hand.ts";
import { refusalOf } from "../hands/pins.ts";
import { findHand, type RegisteredHand } from "../hands/registry.ts";
import type { Documents } from "../session-store/documents.ts";
import type { ServerRef } from "../session-store/events/log.ts";
import { LOG_URL } from "./log-tools.ts";

const SCHEME = "hand:";

/** The name that an agent's address holds; null: it is a URL, or the session's own log, which nobody registers. */
export const nameOf = (url: string): string | null => (url.startsWith(SCHEME) && url !== LOG_URL ? url.slice(SCHEME.length) : null);

/** Is a logged address this one? H2 */
export const isAt = (logged: string, url: string): boolean => logged === url || (nameOf(url) !== null && logged.startsWith(`${url}#`));

/** How a hand is to be reached, and the address that says so in the log. */
export interface Placed {
  readonly wanted: ServerWanted;
  readonly address: string;
  /** Of the hand itself; `isAlone`: no other ones may be used for it. */
  readonly vaults: { readonly ids: readonly string[]; readonly isAlone: boolean };
}

export interface Found {
  /** Null: nobody registered it. H3 */
  readonly record: RegisteredHand | null;
  readonly placed: Placed;
}

/** H1. `server`: one whose address is a name. */
export async function findRegistered(documents: Documents, workspace: string, server: ServerRef): Promise<Found> {
  const name = nameOf(server.url) ?? "";
  const record = await findHand(documents, workspace, name);
  if (record === null) {
    const wanted: ServerWanted = { name: server.name, transport: { type: "configured", server: name } };
    return { record, placed: { wanted, address: server.url, vaults: { ids: [], isAlone: false } } };
  }
  return { record, placed: placedOf(record, workspace, server) };
}

export type Admitted =
  | { readonly type: "admitted"; readonly pin: string | null; readonly placed: Placed }
  | { readonly type: "refused"; readonly says: string; readonly placed: Placed };

/** May this tool be called now? */
export async function admitted(documents: Documents, workspace: string, server: ServerRef, tool: string): Promise<Admitted> {
  const { record, placed } = await findRegistered(documents, workspace, server);
  const says = record === null ? null : refusalOf(record, tool);
  if (says !== null) return { type: "refused", says, placed };
  return { type: "admitted", pin: record?.tools?.find(({ name }) => name === tool)?.hash ?? null, placed };
}

function placedOf({ name, transport, sharing, timeouts, vault_ids }: RegisteredHand, workspace: string, server: ServerRef): Placed {
  const times = { connectMs: timeouts.connect_ms ?? undefined, idleMs: timeouts.idle_ms ?? undefined, totalMs: timeouts.total_ms ?? undefined };
  const wanted: ServerWanted = {
    name: server.name,
    transport:
      transport.type === "stdio"
        ? { type: "configured", server: transport.server }
        : { type: "url", url: transport.url, ...(transport.type === "sse" ? { isSse: true } : {}) },
    ...(sharing === "shared" ? { shared: `${workspace}/${name}` } : {}),
    ...(Object.values(times).some((ms) => ms !== undefined) ? { times } : {}),
  };
  const mark = createHash("sha256").update(JSON.stringify(wanted)).digest("hex").slice(0, 12);
  return { wanted, address: `${server.url}#${mark}`, vaults: { ids: vault_ids, isAlone: sharing === "shared" } };
}
