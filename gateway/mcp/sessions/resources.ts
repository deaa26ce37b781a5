// Sessions as resources: `session://{id}`, a transcript to read, and `session://{id}/events`, the events as they are.
//
//   Y1  A resource is its tenant's: another's is as unknown as one that is not there.
//   Y2  A read is bounded: the newest events are shown, and what was left out is said.

import { setTimeout as sleep } from "node:timers/promises";
import type { Resource } from "@modelcontextprotocol/server";
import { z } from "zod";
import { follow } from "../../../session-store/follow.ts";
import { parseSessionId, type SessionId } from "../../../session-store/ids.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import type { SessionRecord } from "../../../session-store/session.ts";
import { agentOf, statusOf, titleOf } from "../../../session-store/session.ts";
import type { Door } from "../../http/call.ts";
import { ownSession } from "../../http/call.ts";
import { EventList, listEvents } from "../../http/event-list.ts";
import { readQuery } from "../../http/query.ts";
import { SessionList } from "../../http/session-schema.ts";
import { listSessions } from "../../http/sessions.ts";
import type { Caller } from "../caller.ts";
import type { CallContext, Completion, Resources } from "../surface.ts";
import { ToolAsker } from "./asker.ts";
import { EventPage } from "./events.ts";
import { transcriptOf } from "./transcript.ts";

const LISTED = 50;
const COMPLETED_FROM = 100;
const READ_EVENTS = 500;
const GONE_POLL_MS = 60_000;
const URI = /^session:\/\/(sesn_[0-9A-Za-z]{1,64})(\/events)?$/;

const Listed = z.object({ data: z.array(z.looseObject({ id: z.string() })), next_page: z.string().nullable() });

export class SessionResources implements Resources {
  readonly templates = [
    { uriTemplate: "session://{id}", name: "session", title: "Session", description: "A session's transcript", mimeType: "text/markdown" },
    {
      uriTemplate: "session://{id}/events",
      name: "session-events",
      title: "Session events",
      description: `A session's newest ${READ_EVENTS} events as JSON`,
      mimeType: "application/json",
    },
  ];
  readonly #door: Door;

  constructor(door: Door) {
    this.#door = door;
  }

  async list(cursor: string | undefined, { caller }: CallContext): Promise<{ resources: Resource[]; nextCursor?: string }> {
    const { data, next_page } = await this.#page(caller, LISTED, cursor);
    const records = await Promise.all(data.map(({ id }) => this.#own(id, caller)));
    const resources = records.flatMap((record) => (record ? [shown(record)] : []));
    return { resources, ...(next_page !== null && { nextCursor: next_page }) };
  }

  async read(uri: string, { caller }: CallContext) {
    const [, id, isRaw] = URI.exec(uri) ?? [];
    const record = id === undefined ? null : await this.#own(id, caller);
    if (!record) return null;
    const search = new URLSearchParams({ order: "desc", limit: String(READ_EVENTS) });
    const asker = new ToolAsker({ caller, path: "", session: record.id });
    const { text } = await listEvents(this.#door, asker, readQuery(EventList, search));
    const { data, next_page } = EventPage.parse(JSON.parse(text));
    const events = data.reverse();
    if (isRaw) return { contents: [{ uri, mimeType: "application/json", text: JSON.stringify({ events, has_older: next_page !== null }) }] };
    const note = next_page === null ? "" : "*Older events are left out; get_events has them.*\n\n";
    return { contents: [{ uri, mimeType: "text/markdown", text: note + transcriptOf(titleOf(record) ?? record.id, events) }] };
  }

  async mayWatch(uri: string, caller: Caller): Promise<boolean> {
    const id = URI.exec(uri)?.[1];
    return id !== undefined && (await this.#own(id, caller)) !== null;
  }

  async watch(uri: string, changed: () => void, signal: AbortSignal): Promise<void> {
    const id = parseSessionId(URI.exec(uri)?.[1] ?? "");
    if (!id) return;
    try {
      const { head } = await this.#door.store.getSession(id);
      for await (const { entry } of follow(this.#door.store, id, head, signal)) if (!entry.type.startsWith("log.")) changed();
    } catch (error) {
      if (!(error instanceof Refusal && error.code === "session_not_found")) throw error;
      // It was deleted, which is the last thing to tell.
      changed();
      while (!signal.aborted) await sleep(GONE_POLL_MS, undefined, { signal }).catch(() => {});
    }
  }

  /** Session ids, newest first. */
  async complete({ ref, name, value }: Completion, { caller }: CallContext): Promise<{ values: readonly string[] }> {
    if (ref.type !== "ref/resource" || name !== "id" || !this.templates.some(({ uriTemplate }) => uriTemplate === ref.uri)) return { values: [] };
    const { data } = await this.#page(caller, COMPLETED_FROM, undefined);
    return { values: data.map(({ id }) => id).filter((id) => id.startsWith(value)) };
  }

  async #page(caller: Caller, limit: number, page: string | undefined): Promise<z.infer<typeof Listed>> {
    const search = new URLSearchParams({ limit: String(limit), ...(page !== undefined && { page }) });
    return Listed.parse(await listSessions(this.#door, new ToolAsker({ caller, path: "/v1/sessions" }), readQuery(SessionList, search)));
  }

  /** Y1 */
  async #own(id: string, caller: Caller): Promise<SessionRecord | null> {
    try {
      return await ownSession(this.#door, { principal: caller }, id as SessionId);
    } catch (error) {
      if (error instanceof Refusal && error.code === "session_not_found") return null;
      throw error;
    }
  }
}

function shown(record: SessionRecord): Resource {
  const title = titleOf(record);
  return {
    uri: `session://${record.id}`,
    name: record.id,
    ...(title !== null && { title }),
    description: `Session with ${agentOf(record).name}, ${statusOf(record)}`,
    mimeType: "text/markdown",
  };
}
