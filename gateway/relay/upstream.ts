// What the relay of a hand is made of: who asks, where it goes, and who serves a client whose era is not the hand's.
//
//   U1  Nothing of a client's own authorization is in an `Address`, or goes there beside it: what is sent as headers is chosen, not passed on.
//   U2  A client's session at a hand is a document (`RelaySession`): any node serves it. It belongs to one caller and one hand at one address.
//   U3  Who serves a message asks `policy` before it sends a tool's call, and shows no tool that `policy` refuses.

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import type { Readable } from "node:stream";
import type { RegisteredHand } from "../../hands/registry.ts";
import type { Caller } from "../mcp/caller.ts";
import type { Message } from "../mcp/rpc.ts";

/** `handshake`: 2024-11-05 to 2025-11-25; `stateless`: from 2026-07-28 on. */
export type Era = "handshake" | "stateless";

/** Where the requests for a hand go. */
export interface Address {
  readonly url: URL;
  /** What only we may say there. U1 */
  readonly headers: Readonly<Record<string, string>>;
  /** A program of this installation: it is not held against the guard of addresses. */
  readonly isOwn: boolean;
  /** The hand's own address, where the vault proxy stands between and puts its credential in; null elsewhere. */
  readonly target: string | null;
  /** Known without asking; null: it is asked (see eras.ts). */
  readonly era: Era | null;
}

export interface Times {
  readonly connectMs: number;
  /** Without a byte of an answer. */
  readonly idleMs: number;
  /** An answer in all. */
  readonly totalMs: number;
}

export interface UpstreamRequest {
  readonly method: "POST" | "GET" | "DELETE";
  /** Lower-case names; `host` and the address's own are added. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | string | null;
  /** Closes the request, and with it its answer. */
  readonly signal: AbortSignal;
}

export interface UpstreamAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Counted: past the limit it is an error. To be read to its end or destroyed. */
  readonly body: Readable;
}

/** One hand, as one caller reaches it. */
export interface Upstream {
  readonly hand: RegisteredHand;
  readonly workspace: string;
  readonly address: Address;
  readonly times: Times;
  readonly policy: Policy;
  /** Throws an `RpcError` with clear words when the hand can't be reached, refuses us, or says nothing in time. An answer of any other status is an answer. */
  send(request: UpstreamRequest): Promise<UpstreamAnswer>;
  /** The same hand where something of it was opened before (`placeOf` its address); null: it is not what it was. */
  at(place: string): Upstream | null;
}

export interface Policy {
  /** Why a tool may not be called, or null: it may. U3 */
  refused(tool: string): string | null;
  /** No tool is refused. */
  readonly isOpen: boolean;
}

/** A client's session of the handshake era. U2 */
export interface RelaySession {
  readonly id: string;
  readonly revision: number;
  /** Name of the caller that it belongs to. */
  readonly caller: string;
  readonly workspace: string;
  readonly hand: string;
  /** Where it was opened (`placeOf` in address.ts). */
  readonly url: string;
  /** As agreed on with the client. */
  readonly version: string;
  /** The client's `initialize` parameters, as JSON. */
  readonly hello: string;
  /** The era of the hand: `handshake`: the messages pass; `stateless`: they are translated. */
  readonly era: Era;
  /** The session's id at the hand; null: it gave none. */
  readonly upstream: string | null;
  /** What the hand is to be told again after it lost the session: the last level, the subscriptions. */
  readonly level: string | null;
  readonly subscriptions: readonly string[];
  /** The translator's own, JSON; null: nothing. */
  readonly notes: unknown;
  readonly usedAt: number;
}

type SessionChange = Partial<Pick<RelaySession, "upstream" | "level" | "subscriptions" | "notes">>;

export interface Sessions {
  open(
    session: Pick<RelaySession, "caller" | "workspace" | "hand" | "url" | "version" | "hello" | "era" | "upstream" | "notes">,
  ): Promise<RelaySession>;
  /** Null when there is none (any more). */
  peek(id: string): Promise<RelaySession | null>;
  /** `change` is asked again when another node was faster; null: nothing to change. Gives the session as it is then; null: it ended. */
  update(id: string, change: (session: RelaySession) => SessionChange | null): Promise<RelaySession | null>;
  end(session: Pick<RelaySession, "id" | "caller">): Promise<void>;
}

/** One request of a client, let in: its session, if it names one, is there and the caller's own. */
export interface Exchange {
  /** The client's era; the hand's is the other one. */
  readonly era: Era;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** Null: a GET or DELETE. */
  readonly message: Message | null;
  readonly session: RelaySession | null;
  readonly caller: Caller;
  readonly upstream: Upstream;
  readonly sessions: Sessions;
  /** How often a silent stream says that it is there. */
  readonly keepAliveMs: number;
  /** Aborts when the client is gone or this node stops. */
  readonly signal: AbortSignal;
}

/** Serves clients of one era with a hand of the other. */
export interface Crossing {
  /** Answers the exchange. An `RpcError` that it throws before it answered is answered by the relay; on `initialize` it opens the session. */
  serve(exchange: Exchange): Promise<void>;
  /** A crossed session was ended, by its client or by age: what is kept for it at the hand may go. The document is gone already. */
  ended(session: RelaySession): Promise<void>;
  close(): Promise<void>;
}
