// What a gateway writes on a client's behalf: an update, an archive.

import type { EventId } from "../ids.ts";
import type { AgentSnapshot } from "./log.ts";

export type GatewayEvent =
  | {
      readonly id: EventId;
      readonly type: "session.updated";
      readonly title?: string | null;
      readonly metadata?: Readonly<Record<string, string>>;
      readonly agent?: AgentSnapshot;
    }
  | { readonly id: EventId; readonly type: "session.status_terminated" }
  | { readonly id: EventId; readonly type: "session.thread_status_terminated"; readonly session_thread_id: string; readonly agent_name: string };
