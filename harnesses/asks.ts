// Calls that came by the session's own door (`log.asked`): judged and taken up by the host that holds the lease, then run like the model's.
//
//   K1  A call is taken up once: `log.taken` and its tool use are one append, under the fence. From there on it is a call like any other, and whoever
//       takes the session over goes on with it; it never runs twice (M1 of hands/hand.ts).
//   K2  What may not run is refused in words that say what to do; no tool use is written for it.
//   K3  A key of a turn is good under that turn's lease alone, a client's key until the session next begins to run: what comes late is refused here,
//       whatever the door that let it in knew.
//   K4  A call that was called off is not started, or ended at its hand; its result says so.
//   K5  At most OPEN_MAX of them are open at a time.

import type { BrainEntry } from "../session-store/entry.ts";
import type { LogAsked } from "../session-store/events/log.ts";
import type { EventId, Fence } from "../session-store/ids.ts";
import type { Calls } from "./calls.ts";
import type { ToolDescriptor } from "./harness.ts";
import type { LeaseContext } from "./host-context.ts";
import type { Journal } from "./journal.ts";
import { judge } from "./permissions.ts";
import { toolsOf } from "./tools.ts";
import type { LogView } from "./view.ts";
import { wellFormed } from "./well-formed.ts";

const OPEN_MAX = 64;

const SUPERSEDED = "The key is of an earlier turn of this session: nothing was run. Ask for a new key.";
const CALLED_OFF = "The call was called off before it began: nothing was run.";
const CONFIRM =
  "The tool was not run: it asks a person first (its permission policy). Let the agent itself call it, so that the session waits for a confirmation; " +
  "or call it with a key of the workspace from a client that can ask a person (elicitation); or set the tool's policy to always_allow.";

export class Asks {
  readonly #context: LeaseContext;
  readonly #journal: Journal;
  readonly #calls: Calls;
  /** What is being taken up, and what is being called off. K1 */
  readonly #seen = new Set<EventId>();
  readonly #ending = new Set<EventId>();
  readonly #work = new Set<Promise<void>>();
  #isOpen = false;

  constructor(context: LeaseContext, journal: Journal, calls: Calls) {
    this.#context = context;
    this.#journal = journal;
    this.#calls = calls;
  }

  /** Takes up what waits and ends what was called off; resolves when that is in the log. Asked again meanwhile it does nothing twice. K1 */
  async take(): Promise<void> {
    const { asked } = this.#journal.view;
    const fresh = asked.waiting.filter(({ id }) => !this.#seen.has(id));
    if (fresh.length > 0) this.#do(this.#seen, fresh, () => this.#takeUp(fresh));
    this.#goOn();
    await Promise.all(this.#work);
  }

  /** The log was read to its head: what waits there waits indeed. */
  open(): void {
    this.#isOpen = true;
    this.look();
  }

  /** Takes up what came, with nobody who waits for it; an interrupt comes first. */
  look(): void {
    if (!this.#isOpen || this.#journal.view.hasInterrupt) return;
    const { lease, log } = this.#context;
    this.take().catch((error: unknown) => log.debug({ sessionId: lease.id, fence: lease.fence, err: error }, "ask.untaken"));
  }

  /** What ends a session's turn for good ends what waits at its door. */
  refuseAll(why: string): readonly BrainEntry[] {
    return this.#journal.view.asked.waiting.map(({ id }) => ({ type: "log.taken", id, refused: why }));
  }

  async #takeUp(asks: readonly LogAsked[]): Promise<void> {
    const { view } = this.#journal;
    const room = OPEN_MAX - view.openCalls.filter(({ id }) => view.asked.has(id)).length;
    const { fence } = this.#context.lease;
    await this.#journal.append(asks.flatMap((ask, index) => takenEntries(view, fence, ask, index < room)));
    this.#goOn();
  }

  /** Those that are open, also from an earlier lease, are run, or ended where they were called off. K1 K4 */
  #goOn(): void {
    const { asked, openCalls } = this.#journal.view;
    const open = openCalls.filter(({ id }) => asked.has(id));
    this.#calls.start(open.filter(({ id }) => !asked.isCalledOff(id)));
    for (const call of open)
      if (asked.isCalledOff(call.id) && !this.#ending.has(call.id)) this.#do(this.#ending, [call], () => this.#calls.callOff(call));
  }

  /** What fails is tried again when the session is next looked at. */
  #do(marked: Set<EventId>, what: readonly { readonly id: EventId }[], work: () => Promise<void>): void {
    for (const { id } of what) marked.add(id);
    const done = work()
      .catch((error: unknown) => {
        for (const { id } of what) marked.delete(id);
        throw error;
      })
      .finally(() => this.#work.delete(done));
    // Whoever waits for it awaits it; until then its failure is nobody's.
    done.catch(() => {});
    this.#work.add(done);
  }
}

/** K1–K5 */
export function takenEntries(view: LogView, fence: Fence, { id, name, input, by }: LogAsked, hasRoom: boolean): readonly BrainEntry[] {
  const refused = (why: string): readonly BrainEntry[] => [{ type: "log.taken", id, refused: why }];
  if (view.asked.isCalledOff(id)) return refused(CALLED_OFF);
  if ((by.type === "turn" && by.fence !== fence) || (by.type === "client" && view.asked.turnAt > by.at)) return refused(SUPERSEDED);
  if (!hasRoom)
    return refused(`Too many calls of this door are open in this session (${OPEN_MAX}): nothing was run. Try again when some have ended.`);
  const tool = handTools(view).find((one) => one.name === name);
  const verdict = judge(view.agent, tool);
  if (!tool || verdict.type !== "tool" || verdict.permission === "deny")
    return refused(`There is no tool ${JSON.stringify(name)} here, or it is disabled.`);
  if (verdict.permission === "ask" && !(by.type === "workspace" && by.isConfirmed)) return refused(CONFIRM);
  const fields = {
    id,
    input: wellFormed(input),
    evaluated_permission: "allow" as const,
    ...(verdict.permission === "allow" && evaluationOf(verdict)),
  };
  const use: BrainEntry = tool.mcp
    ? { type: "agent.mcp_tool_use", mcp_server_name: tool.mcp.server, name: tool.mcp.name, ...fields }
    : { type: "agent.tool_use", name, ...fields };
  return [{ type: "log.taken", id, refused: null }, use];
}

const evaluationOf = ({ evaluation }: Extract<ReturnType<typeof judge>, { type: "tool" }>) => (evaluation ? { evaluation } : {});

/** The tools of an agent that hands run, named as the model sees them, in that order. */
export function handTools({ agent, servers }: Pick<LogView, "agent" | "servers">): readonly ToolDescriptor[] {
  return toolsOf(agent, servers).filter(({ source }) => source === "hand" || source === "mcp");
}
