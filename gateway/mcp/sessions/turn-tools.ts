// The tools that give a session something to do, and wait for what comes of it.
//
//   X1  A message is stored once, whatever follows: a question to a person in between does not send it again.
//   X2  A client that calls the request off stops waiting. The turn goes on, unless the caller asked for an interrupt in that case: a connection
//       that breaks looks the same as a user who pressed stop.

import { z } from "zod";
import { position, type SessionId } from "../../../session-store/ids.ts";
import type { Door } from "../../http/call.ts";
import { ownSession } from "../../http/call.ts";
import { Send } from "../../http/event-schema.ts";
import { sendEvents } from "../../http/events.ts";
import type { CallContext, ToolEntry } from "../surface.ts";
import { answer, ask, tool } from "../surface.ts";
import { bodyOf, ToolAsker } from "./asker.ts";
import { canAskPerson, decisionsIn, questionsFor } from "./confirm.ts";
import { type Place, Turn, waitForTurn, waitSeconds } from "./turn.ts";

const SEND_WAIT_S = 45;
const INTERRUPT_WAIT_S = 10;

const session_id = z.string().describe("A session's id, as create_session or find_sessions gave it");
const idempotency_key = z.string().optional().describe("Send the same key again to be sure that this happened once");
const after = z.int().min(0).optional().describe("A position: only what came later is told. Default: the start of the last turn");

/** What an asked tool remembers while a person decides. */
const State = z.object({ after: z.number(), from: z.number(), ids: z.array(z.string()) });

/** Tools that end in a wait. */
export function turnTools(door: Door): readonly ToolEntry[] {
  const send = (context: CallContext, id: string, event: object, key?: string) => {
    const asker = new ToolAsker({ caller: context.caller, path: `/v1/sessions/${id}/events`, session: id, key });
    return sendEvents(door, asker, bodyOf(Send, { events: [event] }));
  };
  const own = async (context: CallContext, id: string) => {
    const asker = new ToolAsker({ caller: context.caller, path: "", session: id });
    return ownSession(door, { principal: context.caller }, asker.sessionId());
  };

  /** Waits, and lets a person decide about what has to be confirmed as long as there is something and the client can ask. */
  async function finish(id: SessionId, place: Place, context: CallContext, onCallOff: "leave" | "interrupt" = "leave") {
    const turn = await waitForTurn(door.store, id, place, context);
    if (context.signal.aborted && !turn.is_over && onCallOff === "interrupt") await send(context, id, { type: "user.interrupt" });
    const open = turn.waiting_for.filter(({ kind }) => kind === "confirmation");
    if (open.length > 0 && place.seconds > 0 && canAskPerson(context))
      return ask(questionsFor(open), { after: place.after, from: turn.session.position, ids: open.map((use) => use.tool_use_id) });
    return answer(turn, textOf(turn));
  }

  /** A tool's second run: the person decided, or put it aside. X1 */
  async function decided(id: SessionId, seconds: number, context: CallContext, onCallOff: "leave" | "interrupt" = "leave") {
    const state = State.parse(context.state);
    const decisions = decisionsIn(context.answers ?? {}, state.ids);
    for (const decision of decisions) await send(context, id, { type: "user.tool_confirmation", ...decision });
    const place = { after: state.after, from: state.from, seconds };
    if (decisions.length > 0) return finish(id, place, context, onCallOff);
    const turn = await waitForTurn(door.store, id, { ...place, seconds: 0, after: state.after }, context);
    return answer(turn, textOf(turn));
  }

  return [
    tool({
      name: "send_message",
      title: "Send a message to a session",
      description:
        "Sends a message to an agent's session and waits for its answer. The answer is in `reply`. If the turn takes longer than `wait_seconds`, " +
        "the agent goes on working and `is_over` is false: call wait_for_session then. A message to a session that is working is queued. " +
        "Refused while the session waits for the answers in `waiting_for`.",
      input: z.object({
        session_id,
        message: z.string().min(1).describe("What to say to the agent"),
        wait_seconds: waitSeconds(SEND_WAIT_S),
        on_cancel: z
          .enum(["leave", "interrupt"])
          .default("leave")
          .describe("What becomes of the turn if this call is cancelled while it waits: it goes on (leave), or is interrupted"),
        idempotency_key,
      }),
      output: Turn,
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
      async run({ session_id: id, message, wait_seconds: seconds, on_cancel, idempotency_key: key }, context) {
        const record = await own(context, id);
        if (context.state !== undefined) return decided(record.id, seconds, context, on_cancel);
        await send(context, id, { type: "user.message", content: [{ type: "text", text: message }] }, key);
        return finish(record.id, { after: record.head, from: record.head, seconds }, context, on_cancel);
      },
    }),
    tool({
      name: "wait_for_session",
      title: "Wait for a session",
      description:
        "Waits until a session's turn is over, at most `wait_seconds`, and tells what the agent said and did since `after`. Returns at once if " +
        "nothing is under way. Changes nothing: safe to call again and again.",
      input: z.object({ session_id, after, wait_seconds: waitSeconds(SEND_WAIT_S) }),
      output: Turn,
      scope: "sessions:read",
      annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
      async run({ session_id: id, after: given, wait_seconds: seconds }, context) {
        const record = await own(context, id);
        const from = given ?? (await startOfTurn(door, record.id));
        const turn = await waitForTurn(door.store, record.id, { after: from, from, seconds }, context);
        return answer(turn, textOf(turn));
      },
    }),
    tool({
      name: "confirm_tool",
      title: "Allow or deny a tool",
      description:
        "Answers a tool use that waits for a person's confirmation (kind `confirmation` in `waiting_for`), then waits for the turn to go on. " +
        "Ask the person first: this decides in their name.",
      input: z.object({
        session_id,
        tool_use_id: z.string().describe("From waiting_for"),
        decision: z.enum(["allow", "deny"]).describe("allow: the tool runs once; deny: the agent is told so"),
        deny_message: z.string().max(10_000).optional().describe("Told to the agent with a deny"),
        wait_seconds: waitSeconds(SEND_WAIT_S),
      }),
      output: Turn,
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
      async run({ session_id: id, tool_use_id, decision, deny_message, wait_seconds: seconds }, context) {
        const record = await own(context, id);
        if (context.state !== undefined) return decided(record.id, seconds, context);
        await send(context, id, {
          type: "user.tool_confirmation",
          tool_use_id,
          result: decision,
          ...(deny_message !== undefined && { deny_message }),
        });
        return finish(record.id, { after: record.head, from: record.head, seconds }, context);
      },
    }),
    tool({
      name: "submit_tool_result",
      title: "Give a tool's result",
      description: "Gives the result of a tool that you run yourself (kind `result` in `waiting_for`), then waits for the turn to go on.",
      input: z.object({
        session_id,
        tool_use_id: z.string().describe("From waiting_for"),
        content: z.string().min(1).describe("What the tool came to, as text"),
        is_error: z.boolean().default(false).describe("The tool failed"),
        wait_seconds: waitSeconds(SEND_WAIT_S),
      }),
      output: Turn,
      annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: true },
      async run({ session_id: id, tool_use_id, content, is_error, wait_seconds: seconds }, context) {
        const record = await own(context, id);
        if (context.state !== undefined) return decided(record.id, seconds, context);
        const event = { type: "user.custom_tool_result", custom_tool_use_id: tool_use_id, content: [{ type: "text", text: content }], is_error };
        await send(context, id, event);
        return finish(record.id, { after: record.head, from: record.head, seconds }, context);
      },
    }),
    tool({
      name: "interrupt_session",
      title: "Interrupt a session",
      description:
        "Stops the turn that is under way: running tools are stopped, open tool uses are closed for good. The session stays and takes messages. " +
        "Does nothing to a session that is idle.",
      input: z.object({ session_id, wait_seconds: waitSeconds(INTERRUPT_WAIT_S) }),
      output: Turn,
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
      async run({ session_id: id, wait_seconds: seconds }, context) {
        const record = await own(context, id);
        await send(context, id, { type: "user.interrupt" });
        const turn = await waitForTurn(door.store, record.id, { after: record.head, from: record.head, seconds }, context);
        return answer(turn, textOf(turn));
      },
    }),
  ];
}

async function startOfTurn(door: Door, id: SessionId): Promise<number> {
  const [started] = await door.store.getEvents(id, { types: ["session.status_running"], order: "desc", limit: 1 });
  return started ? started.position - 1 : position(0);
}

/** For clients that read text: the reply first. */
function textOf({ session, reply, steps, errors, waiting_for, next }: Turn): string {
  const parts = [reply];
  if (steps.length > 0) parts.push(`Tools used: ${steps.map(({ tool: name, is_error }) => `${name}${is_error ? " (failed)" : ""}`).join(", ")}`);
  if (errors.length > 0) parts.push(`Errors: ${errors.join("; ")}`);
  for (const { tool_use_id, name, kind, input } of waiting_for) parts.push(`Waits for a ${kind}: ${name} (${tool_use_id}) ${JSON.stringify(input)}`);
  parts.push(`[session ${session.session_id}, ${session.status}] ${next}`);
  return parts.filter(Boolean).join("\n\n");
}
