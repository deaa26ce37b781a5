// What a log says of the MCP servers of its agent: their hands, what the model was told of their tools, and which were said to be down.
//
//   K1  The order of tools is that in which the log first named them: what comes later is appended, what is gone is left out, nothing moves.

import type { Stored } from "../session-store/entry.ts";
import type { FrozenTool, ServerRef } from "../session-store/events/log.ts";
import type { Position } from "../session-store/ids.ts";
import { isAt } from "./registered.ts";

export interface ServerTool extends FrozenTool {
  readonly server: string;
}

export interface BoundServer {
  readonly hand: string;
  readonly host: string;
  readonly state: "bound" | "lost";
  readonly position: Position;
  readonly url: string;
}

export interface KnownList {
  readonly url: string;
  readonly hash: string;
}

export class KnownServers {
  readonly #hands = new Map<string, BoundServer>();
  readonly #lists = new Map<string, KnownList>();
  readonly #tools = new Map<string, ServerTool>();
  /** Servers that an error named since the session last began to run, and no list since. */
  readonly #down = new Set<string>();

  take({ entry, position }: Stored): void {
    switch (entry.type) {
      case "log.hand":
        if (entry.server)
          this.#hands.set(entry.server.name, { hand: entry.hand, host: entry.host, state: entry.state, position, url: entry.server.url });
        break;
      case "log.tools":
        this.#down.delete(entry.server.name);
        this.#list(entry.server, entry.hash, entry.tools);
        break;
      case "session.error":
        if (entry.error.mcp_server_name !== undefined) this.#down.add(entry.error.mcp_server_name);
        break;
      case "session.status_running":
        this.#down.clear();
        break;
      default:
        break;
    }
  }

  /** Its hand, if the log has one for this very address; of a registered hand, whatever its registration was then. */
  handOf({ name, url }: ServerRef): BoundServer | null {
    const hand = this.#hands.get(name);
    return hand !== undefined && isAt(hand.url, url) ? hand : null;
  }

  /** Null: the model was told nothing of it yet. */
  listOf({ name, url }: ServerRef): KnownList | null {
    const list = this.#lists.get(name);
    return list?.url === url ? list : null;
  }

  isDown(server: string): boolean {
    return this.#down.has(server);
  }

  /** In their order. K1 */
  get tools(): readonly ServerTool[] {
    return [...this.#tools.values()];
  }

  #list({ name, url }: ServerRef, hash: string, tools: readonly FrozenTool[]): void {
    const isOther = this.#lists.get(name)?.url !== url;
    this.#lists.set(name, { url, hash });
    const named = new Set(tools.map((tool) => tool.name));
    for (const [exposed, tool] of this.#tools) if (tool.server === name && (isOther || !named.has(exposed))) this.#tools.delete(exposed);
    for (const tool of tools) this.#tools.set(tool.name, { ...tool, server: name });
  }
}
