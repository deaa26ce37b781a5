// What the contract suite builds its cases from: stores, sessions, entries, and ways to wait for something.

import { expect } from "vitest";
import type { Lease } from "../../../session-store/due.ts";
import type { BrainEntry, OutsideEntry, Stored } from "../../../session-store/entry.ts";
import { NO_USAGE } from "../../../session-store/events/brain.ts";
import type { ClientInput } from "../../../session-store/events/client.ts";
import { eventOf, waits } from "../../../session-store/events/client.ts";
import type { AgentSnapshot, LogCreated } from "../../../session-store/events/log.ts";
import type { EventId, Position, SessionId } from "../../../session-store/ids.ts";
import { mint, mintEvent, mintSession, position } from "../../../session-store/ids.ts";
import type { RefusalCode } from "../../../session-store/refusal.ts";
import { Refusal } from "../../../session-store/refusal.ts";
import type { SessionRecord } from "../../../session-store/session.ts";
import type { SessionStore } from "../../../session-store/store.ts";

interface StoreOptions {
  readonly leaseMs: number;
}

interface Opened {
  readonly store: SessionStore;
  /** A second store on the same data, where the driver can have one. */
  readonly peer?: SessionStore;
  /** Closes the store and opens it again on the same data; `close` closes that one too. */
  readonly reopen?: () => Promise<SessionStore>;
  /** Closes every store of this case and removes its data. */
  readonly close: () => Promise<void>;
}

/** Gives an empty store. */
export type MakeStore = (options: StoreOptions) => Promise<Opened>;
/** Gives an empty store that is closed when the running test ends. */
export type Open = (options?: Partial<StoreOptions>) => Promise<Opened>;

export const agent = (fields: Partial<AgentSnapshot> = {}): AgentSnapshot => ({
  type: "agent",
  id: "agent_1",
  version: 1,
  name: "Ada",
  description: null,
  model: { id: "claude-test" },
  system: null,
  tools: [],
  mcp_servers: [],
  skills: [],
  multiagent: null,
  ...fields,
});

export const created = (fields: Partial<LogCreated> = {}): LogCreated => ({
  type: "log.created",
  workspace: "default",
  agent: agent(),
  environment_id: "env_1",
  title: null,
  metadata: {},
  resources: [],
  vault_ids: [],
  ...fields,
});

function received(input: ClientInput, id: EventId = mintEvent()): Extract<OutsideEntry, { type: "log.received" }> {
  return { type: "log.received", event: eventOf(id, input), waits: waits(input) };
}
export const message = (text = "hello", id?: EventId) => received({ type: "user.message", content: [{ type: "text", text }] }, id);
export const outcome = (id?: EventId) =>
  received({ type: "user.define_outcome", description: "a report", rubric: { type: "text", content: "good" } }, id);
export const interrupt = () => received({ type: "user.interrupt" });
export const answer = (call: EventId) => received({ type: "user.custom_tool_result", custom_tool_use_id: call, content: [] });
export const confirmation = (call: EventId, result: "allow" | "deny" = "allow") =>
  received({ type: "user.tool_confirmation", tool_use_id: call, result });
export const retitled = (title: string): OutsideEntry => ({ id: mintEvent(), type: "session.updated", title });
export const archived = (): OutsideEntry => ({ id: mintEvent(), type: "session.status_terminated" });

export const running = (): BrainEntry => ({ id: mintEvent(), type: "session.status_running" });
export const rescheduled = (): BrainEntry => ({ id: mintEvent(), type: "session.status_rescheduled" });
export const idle = (): BrainEntry => ({ id: mintEvent(), type: "session.status_idle", stop_reason: { type: "end_turn" }, stop_details: null });
export const says = (text: string): BrainEntry => ({ id: mintEvent(), type: "agent.message", content: [{ type: "text", text }] });
export const spanStart = (): BrainEntry => ({ id: mintEvent(), type: "span.model_request_start" });
export const asks = (id: EventId): BrainEntry => ({ id, type: "agent.tool_use", name: "bash", input: {}, evaluated_permission: "ask" });
export const calls = (id: EventId): BrainEntry => ({ id, type: "agent.custom_tool_use", name: "look_up", input: { q: 1 } });
export const result = (call: EventId): BrainEntry => ({
  id: mintEvent(),
  type: "agent.tool_result",
  tool_use_id: call,
  content: [],
  is_error: false,
});
export const usage = (output: number): BrainEntry => ({
  id: mintEvent(),
  type: "session.usage",
  usage: { ...NO_USAGE, output_tokens: output },
  budget: null,
});
export const reply = (): BrainEntry => ({
  type: "log.reply",
  harness: "test",
  span: mintEvent(),
  model: "claude-test",
  stop_reason: "end_turn",
  content: [{ type: "text", text: "hi" }],
  calls: [],
  usage: { input_tokens: 1, output_tokens: 1, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 },
});
/** The entry by which a brain takes up what was received. */
export function applies(stored: Stored): BrainEntry {
  if (stored.entry.type !== "log.received") throw new Error(`not received: ${stored.entry.type}`);
  const { event } = stored.entry;
  if (event.type === "user.define_outcome") return { type: "log.outcome", id: event.id, outcome_id: event.outcome_id };
  return { type: "log.applied", ref: stored.position, id: event.id };
}

/** Makes a session; due at once when it is told something. */
export const openSession = (store: SessionStore, entries: readonly OutsideEntry[] = [], fields: Partial<LogCreated> = {}): Promise<SessionRecord> =>
  store.create({ id: mintSession(), created: created(fields), entries });

/** Makes a session with a message and takes it; nothing else may be due in the store. */
export async function openHeld(store: SessionStore): Promise<{ id: SessionId; lease: Lease; said: Stored }> {
  const { id } = await openSession(store, [message()]);
  const lease = await take(store);
  expect(lease.id).toBe(id);
  const [said] = await store.getEvents(id, { after: position(1) });
  if (!said) throw new Error("the message is missing");
  return { id, lease, said };
}

/** Takes a message up and ends the turn: the session is idle. */
export async function openIdle(store: SessionStore): Promise<{ id: SessionId; lease: Lease; head: Position }> {
  const { id, lease, said } = await openHeld(store);
  const stored = storedOf(await store.finish(lease, 1, position(2), [applies(said), idle()]));
  return { id, lease, head: headOf(stored) };
}

export const nonce = (): string => mint("nonce");

/** Takes what is due, which must be there. */
export async function take(store: SessionStore): Promise<Lease> {
  const lease = await store.take("http://127.0.0.1:1", nonce());
  if (!lease) throw new Error("nothing is due");
  return lease;
}

export const takeOrNull = (store: SessionStore): Promise<Lease | null> => store.take("http://127.0.0.1:1", nonce());

export function storedOf(answer: readonly Stored[] | "more" | "moved"): readonly Stored[] {
  if (typeof answer === "string") throw new Error(`the store answered "${answer}"`);
  return answer;
}

export const positionsOf = (stored: readonly Stored[]): readonly number[] => stored.map(({ position }) => position);
export const entriesOf = (stored: readonly Stored[]): readonly unknown[] => stored.map(({ entry }) => entry);
const headOf = (stored: readonly Stored[]): Position => stored.at(-1)?.position ?? position(0);

/** The code by which a call was refused; "none" when it was not refused. */
export async function codeOf(call: Promise<unknown>): Promise<RefusalCode | "none"> {
  try {
    await call;
    return "none";
  } catch (error) {
    if (error instanceof Refusal) return error.code;
    throw error;
  }
}

/** Everything that can be read of a session, to see that a refused call changed nothing. */
export async function wholeOf(store: SessionStore, id: SessionId): Promise<unknown> {
  return { record: await store.getSession(id), events: await store.getEvents(id) };
}

/** Waits until `look` gives something else than null or false. */
export async function until<T>(look: () => T | Promise<T>, deadlineMs = 10_000): Promise<Exclude<T, null | undefined | false>> {
  const deadline = Date.now() + deadlineMs;
  for (;;) {
    const seen = await look();
    if (seen !== null && seen !== undefined && seen !== false) return seen as Exclude<T, null | undefined | false>;
    if (Date.now() > deadline) throw new Error(`not within ${deadlineMs} ms: ${look}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
