// A session's events as a list (contract §6.3), read as of the head that its first page fixed.
//
//   Z1  Placed events by position up to that head, then what was received by then and not applied by then, in order of arrival (shown processed
//       if it is by now). Descending is the exact reverse. Nothing twice, nothing missed, whatever is appended meanwhile.
//   Z2  A page costs reads of about its own size: places are positions, a time cut is found by halving.
//   Z3  A page ends at `limit` events or PAGE_BYTES_MAX, never before its first event.

import { z } from "zod";
import type { Stored } from "../../session-store/entry.ts";
import type { SessionId } from "../../session-store/ids.ts";
import { position } from "../../session-store/ids.ts";
import type { SessionRecord } from "../../session-store/session.ts";
import { pendingOf } from "../../session-store/session.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { invalid } from "../answer.ts";
import type { Asker, Call, Door } from "./call.ts";
import { JsonText, ownSession } from "./call.ts";
import { readCursor, refuseOtherOrder, writeCursor } from "./cursor.ts";
import type { Range } from "./query.ts";
import { CREATED_AT, limit, list, order, page, rangeOf } from "./query.ts";
import type { WireEvent } from "./wire.ts";
import { CLIENT_TYPES, EVENT_TYPES, isWireEntry, readReceived, receivedOf, SERVER_TYPES, wireOfClient, wireOfEntry } from "./wire.ts";

const PAGE_BYTES_MAX = 8 * 1024 * 1024;
const READ_MAX = 500;

export const EventList = z.strictObject({
  types: list(z.enum(EVENT_TYPES), 100).optional(),
  ...CREATED_AT,
  order: order.default("asc"),
  limit: limit(1000, 1000),
  page,
});
export const ThreadEventList = z.strictObject({ limit: limit(1000, 1000), page });

/** `h`: the head that the first page fixed; `w`: whether anything waited then; `f`, `p`: phase and position of the last event shown. */
const Cursor = z.strictObject({
  k: z.literal("events"),
  s: z.string(),
  h: z.int().nonnegative(),
  w: z.boolean(),
  o: z.enum(["asc", "desc"]),
  f: z.enum(["placed", "pending"]),
  p: z.int().nonnegative(),
});
type Cursor = z.infer<typeof Cursor>;

/** One visible event and its place. */
interface Shown {
  readonly phase: Cursor["f"];
  readonly position: number;
  readonly event: WireEvent;
}

/** What a page is read from. Placed positions lie in (after, before). */
interface View {
  readonly store: SessionStore;
  readonly record: SessionRecord;
  readonly head: number;
  readonly types: ReadonlySet<string> | null;
  readonly after: number;
  readonly before: number;
  readonly readMax: number;
}

export async function listEvents(door: Door, call: Asker, query: z.infer<typeof EventList>): Promise<JsonText> {
  return pageOf(door, call, call.sessionId(), { ...query, range: rangeOf(query) });
}

/** The events of the primary thread: the same log. */
export async function listThreadEvents(door: Door, call: Call, id: SessionId, query: z.infer<typeof ThreadEventList>): Promise<JsonText> {
  return pageOf(door, call, id, { ...query, order: "asc", range: null });
}

interface ListQuery {
  readonly types?: readonly string[] | undefined;
  readonly order: "asc" | "desc";
  readonly limit: number;
  readonly page?: string | undefined;
  readonly range: Range | null;
}

async function pageOf(door: Door, call: Asker, id: SessionId, query: ListQuery): Promise<JsonText> {
  const { store } = door;
  const cursor = query.page === undefined ? null : readCursor(Cursor, query.page);
  if (cursor) refuseOtherOrder(cursor, query.order);
  const record = await ownSession(door, call, id);
  if (cursor && (cursor.s !== id || cursor.h > record.head || cursor.p > cursor.h)) throw invalid("page: is not a cursor of this list");
  const head = cursor?.h ?? record.head;
  const hasPending = cursor?.w ?? pendingOf(record.projection).length > 0;
  const cut = query.range ? await cutOf(store, id, head, query.range) : { after: 0, before: head + 1 };
  if (cursor && query.range && !(cursor.f === "placed" && cursor.p > cut.after && cursor.p < cut.before))
    throw invalid("page: the created_at filter leaves out this cursor's place");

  const view: View = {
    store,
    record,
    head,
    types: query.types ? new Set(query.types) : null,
    ...cut,
    readMax: Math.min(READ_MAX, query.limit * 2 + 10),
  };
  const showsPending = hasPending && !query.range;
  const parts: string[] = [];
  let bytes = 0;
  let last: Shown | null = null;
  let next: string | null = null;
  for await (const shown of query.order === "asc" ? upward(view, cursor, showsPending) : downward(view, cursor, showsPending)) {
    const text = parts.length < query.limit ? JSON.stringify(shown.event) : "";
    if (last && (parts.length >= query.limit || bytes + text.length > PAGE_BYTES_MAX)) {
      next = writeCursor({ k: "events", s: id, h: head, w: hasPending, o: query.order, f: last.phase, p: last.position } satisfies Cursor);
      break;
    }
    parts.push(text);
    bytes += text.length;
    last = shown;
  }
  return new JsonText(`{"data":[${parts.join(",")}],"next_page":${JSON.stringify(next)}}`);
}

async function* upward(view: View, cursor: Cursor | null, showsPending: boolean): AsyncGenerator<Shown> {
  if (cursor?.f !== "pending") yield* placed(view, "asc", cursor?.p ?? null);
  if (!showsPending) return;
  const after = cursor?.f === "pending" ? cursor.p : 0;
  yield* (await pending(view)).filter((shown) => shown.position > after);
}

async function* downward(view: View, cursor: Cursor | null, showsPending: boolean): AsyncGenerator<Shown> {
  if (showsPending && cursor?.f !== "placed") {
    const before = cursor?.p ?? Number.POSITIVE_INFINITY;
    yield* (await pending(view)).filter((shown) => shown.position < before).reverse();
  }
  yield* placed(view, "desc", cursor?.f === "placed" ? cursor.p : null);
}

/** Events by position, strictly beyond `beyond` in this order. */
async function* placed(view: View, direction: "asc" | "desc", beyond: number | null): AsyncGenerator<Shown> {
  const { store, record, types } = view;
  const wanted = entryTypes(types);
  let after = view.after;
  let before = view.before;
  if (beyond !== null && direction === "asc") after = Math.max(after, beyond);
  if (beyond !== null && direction === "desc") before = Math.min(before, beyond);
  while (after + 1 < before) {
    const read = await store.getEvents(record.id, {
      after: position(after),
      before: position(before),
      types: wanted,
      order: direction,
      limit: view.readMax,
    });
    const end = read.at(-1);
    if (!end) return;
    for (const shown of await visible(view, read)) if (!types || types.has(shown.event.type)) yield shown;
    if (direction === "asc") after = end.position;
    else before = end.position;
  }
}

/** What a run of entries shows: applied events are looked up where they were received. */
async function visible({ store, record }: View, read: readonly Stored[]): Promise<Shown[]> {
  const here = new Map(read.flatMap((stored) => [receivedOf(stored) ?? []].flat()).map((received) => [received.position as number, received]));
  const missing = read.flatMap(({ entry }) => (entry.type === "log.applied" && !here.has(entry.ref) ? [entry.ref] : []));
  const found = await readReceived(store, record.id, missing);
  return read.flatMap((stored): Shown[] => {
    const { entry, at } = stored;
    const place = { phase: "placed" as const, position: stored.position };
    if (isWireEntry(entry)) return [{ ...place, event: wireOfEntry(entry, at) }];
    if (entry.type === "log.received") return entry.waits ? [] : [{ ...place, event: wireOfClient(entry.event, at) }];
    if (entry.type !== "log.applied") return [];
    const received = here.get(entry.ref) ?? found.get(entry.ref);
    return received ? [{ ...place, event: wireOfClient(received.event, at) }] : [];
  });
}

/** What waited at the head: what waits now, and what was applied since. In order of arrival. Z1 */
async function pending({ store, record, head, types }: View): Promise<Shown[]> {
  const processedAt = new Map<number, number | null>();
  for (const { position: at } of pendingOf(record.projection)) if (at <= head) processedAt.set(at, null);
  let after = position(head);
  while (after < record.head) {
    const page = await store.getEvents(record.id, { after, before: position(record.head + 1), types: ["log.applied"] });
    const last = page.at(-1);
    if (!last) break;
    for (const { entry, at } of page) if (entry.type === "log.applied" && entry.ref <= head) processedAt.set(entry.ref, at);
    after = last.position;
  }
  const found = await readReceived(store, record.id, [...processedAt.keys()]);
  return [...processedAt]
    .sort(([one], [other]) => one - other)
    .flatMap(([at, time]) => {
      const received = found.get(at);
      return received ? [{ phase: "pending" as const, position: at, event: wireOfClient(received.event, time) }] : [];
    })
    .filter((shown) => !types || types.has(shown.event.type));
}

/** Which entries can show events of these types. */
function entryTypes(types: ReadonlySet<string> | null): readonly string[] {
  const made = [...SERVER_TYPES, "user.custom_tool_result"].filter((type) => !types || types.has(type));
  const hasClient = !types || CLIENT_TYPES.some((type) => types.has(type));
  return hasClient ? [...made, "log.received", "log.applied"] : made;
}

/** The positions whose times lie in a range: times never go back along a log. Z2 */
async function cutOf(store: SessionStore, id: SessionId, head: number, { gt, gte, lt, lte }: Range) {
  const from = Math.max(gte ?? Number.NEGATIVE_INFINITY, gt === undefined ? Number.NEGATIVE_INFINITY : gt + 1);
  const until = Math.min(lt ?? Number.POSITIVE_INFINITY, lte === undefined ? Number.POSITIVE_INFINITY : lte + 1);
  const [first, end] = await Promise.all([firstAt(store, id, head, from), firstAt(store, id, head, until)]);
  return { after: first - 1, before: end };
}

/** The first position with a time of at least `time`; head + 1 when there is none. */
async function firstAt(store: SessionStore, id: SessionId, head: number, time: number): Promise<number> {
  if (time === Number.NEGATIVE_INFINITY) return 1;
  if (time === Number.POSITIVE_INFINITY) return head + 1;
  let low = 1;
  let high = head + 1;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const [stored] = await store.getEvents(id, { after: position(middle - 1), limit: 1 });
    if (stored && stored.at < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
