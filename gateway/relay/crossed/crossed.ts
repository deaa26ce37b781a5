// Words that both crossings use.

import type { Logger } from "pino";
import { type Topic, topic } from "../../../session-store/ids.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import { CLIENT_CAPABILITIES, CLIENT_INFO } from "../inbound.ts";
import type { Exchange } from "../upstream.ts";
import { metaOf, type Params, recordOf } from "./incoming.ts";

export const SERVER_INFO = "io.modelcontextprotocol/serverInfo";
export const SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId";

/** Questions that were put to a client of the stateless era, for its next try. */
export const ASKED_KIND = "hand_asked";

export interface CrossedOptions {
  readonly store: SessionStore;
  /** 32 bytes that all nodes share. */
  readonly stateKey: Uint8Array;
  readonly log: Logger;
  readonly keepAliveMs: number;
}

/** Rung when something of a crossed session or call changed on some node. */
export const bellOf = (id: string): Topic => topic(`crossed_${id}`);

export const reasonOf = (error: unknown): string => (error instanceof Error ? error.message.slice(0, 200) : "unknown");

/** Without what another era says of a result. */
export function without(value: Params, ...names: readonly string[]): Params {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name)));
}

/** A list of tools without those that may not be called. */
export function shownTools(result: Params, refused: (tool: string) => string | null): Params {
  const { tools } = result;
  if (!Array.isArray(tools)) return result;
  return { ...result, tools: tools.filter((tool) => refused(String(recordOf(tool).name)) === null) };
}

/** What a client of the stateless era says of itself in each request. */
export const capabilitiesOf = ({ message }: Exchange): Params => recordOf(metaIn(message)[CLIENT_CAPABILITIES]);
export const infoOf = ({ message }: Exchange): unknown => metaIn(message)[CLIENT_INFO];
const metaIn = (message: Exchange["message"]): Params => (message?.kind === "request" ? metaOf(message.params) : {});
