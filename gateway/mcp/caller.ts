// Who calls a door for MCP clients.

import type { Principal } from "../authenticate.ts";
import type { Scope } from "./surface.ts";

export interface Caller extends Principal {
  readonly scopes: ReadonlySet<Scope>;
}
