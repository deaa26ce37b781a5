// The tools of a session's MCP servers, asked for before each model request and frozen in the log.
//
//   L1  A request waits FIRST_WAIT_MS in a lease for servers that nothing is known of, and a moment for the others: one that refuses, hangs or is slow
//       delays nobody. Who comes late is told of in a later request.
//   L2  What the model is told stands in the log (`log.tools`): the same at every wake, whatever a server says meanwhile.
//   L3  While a turn runs, tools come and go as the server says; a tool that the model knows changes only when a session begins to run. A changed
//       definition is named in the entry.
//   L4  A server that can't be reached is said once for each time that the session begins to run (`session.error`), and is tried again then. What the
//       model knows of it stays: a call of it says that it is down.
//   L5  Of a registered hand the model is told what was approved, as the registry has it, whether the server is there or not; what the server itself
//       says is only held against it (registered-lists.ts).

import type { ServerTools } from "../hands/hand.ts";
import type { BrainEntry } from "../session-store/entry.ts";
import type { FrozenTool, LogTools, ServerRef } from "../session-store/events/log.ts";
import { mintEvent } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { Bindings } from "./binding.ts";
import type { LeaseContext } from "./host-context.ts";
import type { Journal } from "./journal.ts";
import type { ServerTool } from "./known-servers.ts";
import { LOG_TOOLS, LOG_URL } from "./log-tools.ts";
import { nameOf } from "./registered.ts";
import { RegisteredLists } from "./registered-lists.ts";
import { pause } from "./stop.ts";
import { exposedName } from "./tool-names.ts";
import { serversOf } from "./tools.ts";

const FIRST_WAIT_MS = 1_800;
const WAIT_MS = 250;
/** For a registered hand, whose approved tools are known without its server. */
const REGISTERED_WAIT_MS = 100;
/** Its server's own list may come later: whenever it comes, it is held against the approved one. */
const REGISTERED_LIST_MS = 10_000;
const NOTE_TOOLS_MAX = 10;

interface Answer {
  readonly server: ServerRef;
  /** Of a registered hand that is down: what was approved, and that it is down. */
  readonly told: readonly ServerTools[];
}
type Ready = Extract<ServerTools, { type: "ready" }>;

export class ServerLists {
  readonly #context: LeaseContext;
  readonly #journal: Journal;
  readonly #bindings: Bindings;
  /** Asks that were not answered in time; the next request finds what they came to. */
  readonly #asked = new Map<string, Promise<ServerTools>>();
  readonly #registered: RegisteredLists;
  #isLate = false;

  constructor(context: LeaseContext, journal: Journal, bindings: Bindings) {
    this.#context = context;
    this.#journal = journal;
    this.#bindings = bindings;
    this.#registered = new RegisteredLists(context, journal);
  }

  /** Does the agent have servers at all, and is anything unknown of one? Then it may take a moment until `entries` has an answer. */
  get mayWait(): boolean {
    const { agent, servers } = this.#journal.view;
    return serversOf(agent).some((server) => server.url !== LOG_URL && servers.listOf(server) === null);
  }

  /** What is to be said before the next model request. `isFresh`: the session begins to run. L1 */
  async entries(isFresh: boolean, signal: AbortSignal): Promise<readonly BrainEntry[]> {
    const { agent, servers } = this.#journal.view;
    const wanted = serversOf(agent);
    if (wanted.length === 0) return [];
    const isFirst = !this.#isLate;
    const answers = await Promise.all(
      wanted.map(async (server): Promise<Answer> => {
        const waitMs = isFirst && servers.listOf(server) === null ? FIRST_WAIT_MS : WAIT_MS;
        if (nameOf(server.url) === null) return { server, told: [await this.#within(server, isFresh, waitMs, signal)] };
        const found = await this.#registered.find(server);
        this.#bindings.of(server.name).follow(found.placed);
        const isPinned = found.record !== null && found.record.tools !== null;
        const said = isPinned
          ? await this.#within(server, isFresh, REGISTERED_WAIT_MS, signal, REGISTERED_LIST_MS)
          : await this.#within(server, isFresh, waitMs, signal);
        return { server, told: await this.#registered.told(server, found.record, said) };
      }),
    );
    signal.throwIfAborted();
    this.#isLate = true;
    // In the agent's order, so that the same answers give the same names.
    const named: ServerTool[] = [...servers.tools];
    return answers.flatMap(({ server, told }) => told.flatMap((each) => this.#told(server, each, isFresh, named)));
  }

  /** `listMs`: how long the hand host may wait for the list, whether somebody here still does or not. */
  async #within(server: ServerRef, isFresh: boolean, waitMs: number, signal: AbortSignal, listMs = waitMs): Promise<ServerTools> {
    const key = JSON.stringify([server.name, server.url]);
    const asked = this.#asked.get(key) ?? this.#ask(server, isFresh, listMs);
    this.#asked.set(key, asked);
    const over = new AbortController();
    const late = pause(waitMs, AbortSignal.any([signal, over.signal])).then(
      () => null,
      () => null,
    );
    const told = await Promise.race([asked, late]);
    over.abort();
    if (told !== null) this.#asked.delete(key);
    return told ?? { type: "connecting" };
  }

  async #ask({ name, url }: ServerRef, isFresh: boolean, waitMs: number): Promise<ServerTools> {
    const { hands, lease, leaseSignal, log } = this.#context;
    const known = this.#journal.view.servers.listOf({ name, url })?.hash ?? null;
    if (url === LOG_URL) return known === LOG_TOOLS.hash ? { type: "same" } : LOG_TOOLS;
    const binding = this.#bindings.of(name);
    try {
      const ref = await binding.ensure();
      const has = nameOf(url) === null ? known : this.#registered.hashOf(name);
      const grant = await binding.grant();
      return await hands.listTools(binding.holder, ref, { known: has, waitMs, isFresh, grant }, leaseSignal);
    } catch (error) {
      if (leaseSignal.aborted) return { type: "connecting" };
      if (error instanceof Refusal && error.code === "fenced") this.#context.loseLease(error);
      if (error instanceof Refusal && error.code === "hand_lost") await binding.lose();
      log.warn({ sessionId: lease.id, fence: lease.fence, server: name, err: error }, "server.unlisted");
      return { type: "failed", cause: "connection", message: `MCP server ${JSON.stringify(name)}: its hand host can't be reached` };
    }
  }

  #told(server: ServerRef, told: ServerTools, isFresh: boolean, named: ServerTool[]): readonly BrainEntry[] {
    switch (told.type) {
      case "same":
      case "connecting":
        return [];
      case "failed":
        if (!isFresh && this.#journal.view.servers.isDown(server.name)) return [];
        return [
          serverError(server, told.cause === "authentication" ? "mcp_authentication_failed_error" : "mcp_connection_failed_error", told.message),
        ];
      case "ready":
        return this.#listed(server, told, isFresh, named);
    }
  }

  #listed({ name, url }: ServerRef, told: Ready, isFresh: boolean, named: ServerTool[]): readonly BrainEntry[] {
    const server = { name, url };
    const { servers } = this.#journal.view;
    const isKnown = servers.listOf(server) !== null;
    const before = isKnown ? named.filter((tool) => tool.server === name) : [];
    const frozen = frozenOf(server, told, before, named, isFresh);
    if (frozen === null) return [];
    const { log, lease } = this.#context;
    if (frozen.changed.length > 0) log.warn({ sessionId: lease.id, server: name, tools: frozen.changed.length }, "server.tools_changed");
    for (const tool of frozen.tools) if (!named.some((each) => each.name === tool.name)) named.push({ ...tool, server: name });
    // Before the list: what comes after an error says that the server is there.
    return [...(told.notes.length > 0 ? [serverError(server, "mcp_connection_failed_error", noted(name, told))] : []), frozen];
  }
}

/** The entry that says a list anew; null: it would say nothing new. L2 L3 */
export function frozenOf(
  server: ServerRef,
  { hash, tools }: Pick<Ready, "hash" | "tools">,
  before: readonly FrozenTool[],
  named: readonly { readonly name: string }[],
  isFresh: boolean,
): LogTools | null {
  const known = new Map(before.map((tool) => [tool.original, tool]));
  const taken = new Set(named.map(({ name }) => name));
  const changed = tools.filter((tool) => known.has(tool.name) && known.get(tool.name)?.hash !== tool.hash).map(({ name }) => name);
  const list = tools.map((tool): FrozenTool => {
    const old = known.get(tool.name);
    if (old && (old.hash === tool.hash || !isFresh)) return old;
    const name = old?.name ?? exposedName({ server: server.name, original: tool.name }, (each) => taken.has(each));
    taken.add(name);
    const { name: original, description, input_schema, annotations } = tool;
    return { name, original, description, input_schema, ...(annotations ? { annotations } : {}), hash: tool.hash };
  });
  const isSame = before.length > 0 && list.length === before.length && list.every((tool) => known.get(tool.original) === tool);
  if (isSame) return null;
  // A list that holds a change back has a name of its own, so that the change is asked for again.
  const isWhole = isFresh || changed.length === 0;
  return { type: "log.tools", server, hash: isWhole ? hash : `${hash}-`, tools: list, changed: isWhole ? changed : [] };
}

function serverError(server: ServerRef, type: "mcp_connection_failed_error" | "mcp_authentication_failed_error", message: string): BrainEntry {
  const error = { type, message: message.toWellFormed(), mcp_server_name: server.name, retry_status: { type: "retrying" as const } };
  return { id: mintEvent(), type: "session.error", error };
}

function noted(name: string, { notes }: Ready): string {
  const said = notes.slice(0, NOTE_TOOLS_MAX).map(({ tool, keyword, what, says }) => {
    const verb = what === "left_out" ? "was left out" : "is offered in another form";
    return tool === "" ? says : `tool ${JSON.stringify(tool)} ${verb} (${keyword}): ${says}`;
  });
  const more = notes.length - said.length;
  return `MCP server ${JSON.stringify(name)} is connected, and ${said.join("; ")}${more > 0 ? `; and ${more} more` : ""}.`;
}
