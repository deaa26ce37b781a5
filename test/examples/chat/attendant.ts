// Who answers the application's own tools, whether or not anybody is looking at the conversation.
//
//   T1  A call is answered once: only when the whole history is known, and never if it has a result.
//   T2  In the web program an attendant stays while its session runs, and for QUIET_MS after the last thing that happened.

import Anthropic from "@anthropic-ai/sdk";
import { runTool } from "./assistant.ts";
import type { Conversation } from "./conversation.ts";

const QUIET_MS = 60_000;
const ATTENDED_MAX = 1_000;

type Call = { readonly name: string; readonly input: unknown };

/** Follows the conversation until `signal`; `heard` is told whether the session runs, whenever something happens. T1 */
export async function attend(conversation: Conversation, signal: AbortSignal, heard: (isRunning: boolean) => void = () => {}): Promise<void> {
  const open = new Map<string, Call>();
  let [isCaughtUp, isRunning] = [false, false];
  for await (const item of conversation.follow(null, false, signal)) {
    if (item.type === "link") isCaughtUp = item.isOpen;
    if (item.type === "call" && item.needs === "answer") open.set(item.id, item);
    if (item.type === "result") open.delete(item.callId);
    if (item.type === "status") isRunning = item.status === "running";
    heard(isRunning);
    if (!isCaughtUp) continue;
    for (const [id, { name, input }] of open) {
      if (await isAnswered(conversation, id, { name, input })) open.delete(id);
    }
  }
}

/** False: it could not be said. The call stays open, and whatever happens next tries again. */
async function isAnswered(conversation: Conversation, id: string, { name, input }: Call): Promise<boolean> {
  try {
    await conversation.answer(id, runTool(name, input));
    return true;
  } catch (error) {
    // An answer that is refused came too late: the turn was interrupted, or somebody else has answered.
    if (error instanceof Anthropic.APIError && error.status === 400) return true;
    if (error instanceof Anthropic.APIError) return false;
    throw error;
  }
}

interface Attended {
  readonly controller: AbortController;
  readonly timer: NodeJS.Timeout;
  isRunning: boolean;
}

/** T2 */
export class Attendants {
  readonly #attended = new Map<string, Attended>();
  readonly #failed: (error: unknown) => void;

  constructor(failed: (error: unknown) => void) {
    this.#failed = failed;
  }

  /** Sees to it that somebody attends; false if there are too many already. */
  touch(conversation: Conversation): boolean {
    const id = conversation.sessionId;
    const there = this.#attended.get(id);
    if (there) {
      there.timer.refresh();
      return true;
    }
    if (this.#attended.size >= ATTENDED_MAX) return false;
    const controller = new AbortController();
    const attended: Attended = {
      controller,
      isRunning: false,
      timer: setTimeout(() => (attended.isRunning ? void attended.timer.refresh() : this.#dismiss(id, attended)), QUIET_MS),
    };
    this.#attended.set(id, attended);
    attend(conversation, controller.signal, (isRunning) => {
      attended.isRunning = isRunning;
      attended.timer.refresh();
    })
      .catch(this.#failed)
      .finally(() => this.#dismiss(id, attended));
    return true;
  }

  close(): void {
    for (const [id, attended] of this.#attended) this.#dismiss(id, attended);
  }

  #dismiss(id: string, attended: Attended): void {
    clearTimeout(attended.timer);
    attended.controller.abort();
    if (this.#attended.get(id) === attended) this.#attended.delete(id);
  }
}
