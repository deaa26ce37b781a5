// Waiting for a turn to end, within a bound, and what it came to.
//
//   U1  A wait ends when the session stops, when its time is over, or when it is called off; it always says where to go on.
//   U2  Waiting changes nothing in the session: to be called off ends the wait, not the turn, unless the caller asked for that.
//   U3  While it waits it says how far the turn is, at least every HEARTBEAT_MS: clients with a clock go on waiting.

import { z } from "zod";
import type { Stored } from "../../../session-store/entry.ts";
import { follow } from "../../../session-store/follow.ts";
import { position, type SessionId } from "../../../session-store/ids.ts";
import { statusOf } from "../../../session-store/session.ts";
import type { SessionStore } from "../../../session-store/store.ts";
import type { CallContext } from "../surface.ts";
import { blockingOf, SessionShown, showSession, Waiting } from "./shown.ts";

const HEARTBEAT_MS = 10_000;
const REPLY_CHARS_MAX = 60_000;
const INPUT_CHARS_MAX = 4_000;
const STEPS_MAX = 200;
const OPEN_READ_MAX = 500;

export const WAIT_SECONDS_MAX = 300;
export const waitSeconds = (absent: number) =>
  z
    .number()
    .min(0)
    .max(WAIT_SECONDS_MAX)
    .default(absent)
    .describe(`How long to wait for the turn to end, in seconds, at most ${WAIT_SECONDS_MAX}. 0 returns at once.`);

export const Turn = z.object({
  session: SessionShown,
  is_over: z.boolean().describe("The turn ended; false: it still runs, go on with wait_for_session and `after`"),
  reply: z.string().describe("What the agent said since `after`, oldest first"),
  steps: z.array(z.object({ tool: z.string(), is_error: z.boolean().nullable() })).describe("Tools used since then; null: no result yet"),
  errors: z.array(z.string()),
  waiting_for: z.array(Waiting).describe("Answers that the session waits for; nothing goes on before each is given"),
  after: z.number().describe("Pass this as `after` to see only what comes later"),
  next: z.string().describe("What to do next"),
});
export type Turn = z.infer<typeof Turn>;

export interface Place {
  /** What is told comes after this position. */
  readonly after: number;
  /** The stop that ends the wait comes after this one. */
  readonly from: number;
  readonly seconds: number;
}

/** Waits until the session stops, and tells what came. U1–U3 */
export async function waitForTurn(store: SessionStore, id: SessionId, place: Place, context: CallContext): Promise<Turn> {
  const seen = new Seen(place.after);
  const over = new AbortController();
  const timer = setTimeout(() => over.abort(), place.seconds * 1_000);
  let told = 0;
  const tell = (what: string) => context.progress(++told, undefined, what);
  const started = Date.now();
  const heartbeat = setInterval(() => tell(`The turn is under way (${Math.round((Date.now() - started) / 1_000)} s).`), HEARTBEAT_MS);
  try {
    if (place.seconds > 0) await untilStopped(store, id, place, seen, tell, AbortSignal.any([over.signal, context.signal]));
  } finally {
    clearTimeout(timer);
    clearInterval(heartbeat);
  }
  return report(store, id, seen);
}

async function untilStopped(
  store: SessionStore,
  id: SessionId,
  { after, from }: Place,
  seen: Seen,
  tell: (what: string) => void,
  signal: AbortSignal,
): Promise<void> {
  const record = await store.getSession(id);
  // What stopped before, and was given nothing since, has nothing to wait for.
  const isStill = statusOf(record) === "idle" || statusOf(record) === "terminated";
  if (isStill && after >= record.head) return;
  for await (const stored of follow(store, id, position(after), signal)) {
    const what = seen.see(stored);
    if (what) tell(what);
    const { type } = stored.entry;
    const isStop = type === "session.status_idle" || type === "session.status_terminated";
    if ((isStop && stored.position > from) || (isStill && stored.position >= record.head)) return;
  }
}

/** What came since a position, as far as a model wants to know. */
class Seen {
  after: number;
  readonly #said: string[] = [];
  readonly #steps = new Map<string, { tool: string; is_error: boolean | null }>();
  readonly errors: string[] = [];

  constructor(after: number) {
    this.after = after;
  }

  /** A short word on it for whoever waits; null when it is not worth one. */
  see({ position: at, entry }: Stored): string | null {
    this.after = Math.max(this.after, at);
    switch (entry.type) {
      case "agent.message":
        this.#said.push(entry.content.map(({ text }) => text).join(""));
        return "The agent said something.";
      case "agent.tool_use":
      case "agent.custom_tool_use":
        if (this.#steps.size < STEPS_MAX) this.#steps.set(entry.id, { tool: entry.name, is_error: null });
        return `The agent uses ${entry.name}.`;
      case "agent.tool_result": {
        const step = this.#steps.get(entry.tool_use_id);
        if (step) step.is_error = entry.is_error;
        return step ? `${step.tool} ${entry.is_error ? "failed" : "is done"}.` : null;
      }
      case "session.error":
        this.errors.push(entry.error.message);
        return "The session met an error.";
      default:
        return null;
    }
  }

  get reply(): string {
    const whole = this.#said.join("\n\n");
    if (whole.length <= REPLY_CHARS_MAX) return whole;
    return `[${whole.length - REPLY_CHARS_MAX} characters before this are left out; get_events has them]\n${whole.slice(-REPLY_CHARS_MAX).toWellFormed()}`;
  }

  get steps(): Turn["steps"] {
    return [...this.#steps.values()];
  }
}

async function report(store: SessionStore, id: SessionId, seen: Seen): Promise<Turn> {
  const record = await store.getSession(id);
  const session = showSession(record);
  const waiting_for = await waitingOf(store, id, blockingOf(record));
  const is_over = session.status === "idle" || session.status === "terminated";
  return {
    session,
    is_over,
    reply: seen.reply,
    steps: seen.steps,
    errors: seen.errors,
    waiting_for,
    after: seen.after,
    next: nextOf(session, waiting_for, seen.after),
  };
}

function nextOf({ session_id, status }: SessionShown, waiting: readonly Waiting[], after: number): string {
  if (waiting.some(({ kind }) => kind === "confirmation"))
    return "A person has to allow or deny the tools in waiting_for. Ask them, then answer each with confirm_tool.";
  if (waiting.length > 0) return "Run the tools in waiting_for yourself, then answer each with submit_tool_result.";
  if (status === "terminated") return "The session is archived and takes no more messages.";
  if (status === "idle") return "The turn is over. Send another message with send_message when there is more to do.";
  return `The turn still runs. Call wait_for_session with session_id "${session_id}" and after ${after}.`;
}

/** With the inputs, which the record does not hold. */
async function waitingOf(store: SessionStore, id: SessionId, blocking: ReturnType<typeof blockingOf>): Promise<Waiting[]> {
  if (blocking.length === 0) return [];
  const types = ["agent.tool_use", "agent.custom_tool_use"];
  const uses = await store.getEvents(id, { types, order: "desc", limit: OPEN_READ_MAX });
  return blocking.map(({ id: tool_use_id, name, kind }) => {
    const use = uses.find(({ entry }) => "id" in entry && entry.id === tool_use_id)?.entry;
    return { tool_use_id, name, kind, input: use && "input" in use ? shortened(use.input) : null };
  });
}

function shortened(input: unknown): unknown {
  const text = JSON.stringify(input) ?? "null";
  return text.length <= INPUT_CHARS_MAX
    ? input
    : `${text.slice(0, INPUT_CHARS_MAX).toWellFormed()} [${text.length - INPUT_CHARS_MAX} more characters]`;
}
