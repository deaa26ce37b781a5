// Who calls a door for MCP clients.

import type { AskedBy } from "../../session-store/events/log.ts";
import type { SessionId } from "../../session-store/ids.ts";
import type { Principal } from "../authenticate.ts";
import type { Scope } from "./surface.ts";

export interface Caller extends Principal {
  readonly scopes: ReadonlySet<Scope>;
  /** At the door of one session's hands: whose, and by what right. */
  readonly hands?: { readonly session: SessionId; readonly by: AskedBy };
}
