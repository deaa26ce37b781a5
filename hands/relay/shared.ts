// Children that are one for all clients: started with the first, initialized by us, ended when nobody was there for long.
//
//   H1  A client's `initialize` is answered with what the child said to ours. It is told that it has a client that answers no questions.
//   H2  A subscription is the child's while one session has it; levels of logging are one for all, the last that was set.

import type { ConfiguredServer } from "../servers/configured.ts";
import { type Envelope, metaOf } from "./envelope.ts";
import { HANDSHAKE_VERSIONS, shake } from "./eras.ts";
import type { Link, Owner } from "./link.ts";
import type { Reply } from "./reply.ts";
import { RelaySession, sharedHeard } from "./session.ts";

type CommandServer = Extract<ConfiguredServer, { type: "command" }>;

interface Shared {
  readonly link: Link;
  readonly sessions: Set<RelaySession>;
  readonly hello: Promise<object>;
  leftAt: number;
}

type Joined =
  | { readonly session: RelaySession; readonly result: Readonly<Record<string, unknown>>; readonly says?: never }
  | { readonly session: null; readonly says: string };

/** Whose requests ours are. */
const OURS: Owner = {};

export class SharedServers {
  readonly #start: (name: string, server: CommandServer) => Link;
  readonly #servers = new Map<string, Shared>();

  constructor(start: (name: string, server: CommandServer) => Link) {
    this.#start = start;
  }

  /** H1 */
  async join(name: string, server: CommandServer, hello: Envelope, onEnd: (says: string) => void): Promise<Joined> {
    const shared = this.#servers.get(name) ?? this.#open(name, server);
    const said = await shared.hello;
    const result = "result" in said && typeof said.result === "object" && said.result !== null ? { ...said.result } : null;
    if (!result) {
      if (this.#servers.get(name) === shared) this.#servers.delete(name);
      void shared.link.close();
      const error = "error" in said && typeof said.error === "object" && said.error !== null ? said.error : {};
      return { session: null, says: "message" in error ? String(error.message).slice(0, 500) : "The server refused to be initialized." };
    }
    const session = new RelaySession({ server: name, link: shared.link, isShared: true, onEnd });
    const wanted = HANDSHAKE_VERSIONS.find((version) => version === hello.params?.protocolVersion);
    const spoken = "protocolVersion" in result ? String(result.protocolVersion) : HANDSHAKE_VERSIONS[0];
    session.version = wanted !== undefined && wanted < spoken ? wanted : spoken;
    shared.sessions.add(session);
    return { session, result: { ...result, protocolVersion: session.version } };
  }

  /** H2. True: the request is answered without the child. */
  keepsToItself(session: RelaySession, { id, method, params }: Envelope, reply: Reply): boolean {
    const uri = params?.uri;
    if (typeof uri !== "string" || (method !== "resources/subscribe" && method !== "resources/unsubscribe")) return false;
    const others = [...(this.#servers.get(session.server)?.sessions ?? [])].filter((each) => each !== session);
    if (method === "resources/subscribe") session.subscriptions.add(uri);
    else session.subscriptions.delete(uri);
    if (!others.some(({ subscriptions }) => subscriptions.has(uri))) return false;
    reply.end({ jsonrpc: "2.0", id, result: {} });
    return true;
  }

  leave(session: RelaySession): void {
    const shared = this.#servers.get(session.server);
    if (!shared?.sessions.delete(session)) return;
    shared.leftAt = Date.now();
    const kept = new Set([...shared.sessions].flatMap(({ subscriptions }) => [...subscriptions]));
    for (const uri of session.subscriptions)
      if (!kept.has(uri)) shared.link.request(OURS, unsubscribe(uri), { send: () => {}, end: () => {}, drop: () => {} });
  }

  sweep(before: number): void {
    for (const [name, shared] of [...this.#servers]) {
      if (shared.sessions.size > 0 || shared.leftAt > before) continue;
      this.#servers.delete(name);
      void shared.link.close();
    }
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#servers.values()].map(({ link }) => link.close()));
    this.#servers.clear();
  }

  #open(name: string, server: CommandServer): Shared {
    const link = this.#start(name, server);
    const sessions = new Set<RelaySession>();
    const shared: Shared = { link, sessions, hello: this.#hello(link, () => this.#heard(name, link, sessions)), leftAt: Date.now() };
    this.#servers.set(name, shared);
    return shared;
  }

  async #hello(link: Link, heard: () => void): Promise<object> {
    const said = await shake(link, this);
    if ("result" in said) {
      heard();
      link.send({ jsonrpc: "2.0", method: "notifications/initialized" });
    }
    return said;
  }

  #heard(name: string, link: Link, sessions: ReadonlySet<RelaySession>): void {
    link.listen(
      sharedHeard(
        link,
        () => [...sessions],
        () => {
          if (this.#servers.get(name)?.link === link) this.#servers.delete(name);
        },
      ),
    );
  }
}

let count = 0;
function unsubscribe(uri: string): Envelope & { readonly id: string } {
  count += 1;
  return { jsonrpc: "2.0", id: `unsubscribe-${count}`, method: "resources/unsubscribe", params: { uri, _meta: metaOf(undefined) } };
}
