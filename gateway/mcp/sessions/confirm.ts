// Asking a person through the client whether a tool may run, where the client can; the answers go to the session as anybody's would.

import type { InputRequest } from "@modelcontextprotocol/server";
import { z } from "zod";
import type { CallContext } from "../surface.ts";
import type { Waiting } from "./shown.ts";

const INPUT_CHARS_MAX = 1_500;

/** Can this client show a form? */
export function canAskPerson({ client: { elicitation } }: CallContext): boolean {
  return elicitation !== undefined && (elicitation.form !== undefined || elicitation.url === undefined);
}

export function questionsFor(waiting: readonly Waiting[]): Record<string, InputRequest> {
  return Object.fromEntries(waiting.map((use) => [use.tool_use_id, questionFor(use)]));
}

function questionFor({ name, input }: Waiting): InputRequest {
  const text = JSON.stringify(input);
  const shown = text.length <= INPUT_CHARS_MAX ? text : `${text.slice(0, INPUT_CHARS_MAX).toWellFormed()} … (${text.length} characters)`;
  return {
    method: "elicitation/create",
    params: {
      message: `An agent wants to use the tool ${name} with this input:\n\n${shown}`,
      requestedSchema: {
        type: "object",
        properties: {
          decision: { type: "string", title: "May it run?", enum: ["allow", "deny"], description: "allow: it runs once; deny: the agent is told so" },
          reason: { type: "string", title: "Reason", description: "Told to the agent if you deny" },
        },
        required: ["decision"],
      },
    },
  };
}

export interface Decision {
  readonly tool_use_id: string;
  readonly result: "allow" | "deny";
  readonly deny_message?: string;
}

const Elicited = z.looseObject({
  action: z.enum(["accept", "decline", "cancel"]),
  content: z.looseObject({ decision: z.enum(["allow", "deny"]).optional(), reason: z.string().max(2_000).optional() }).optional(),
});

/** What the person decided; a form that was put aside decides nothing. Only `ids` are looked at. */
export function decisionsIn(answers: Readonly<Record<string, unknown>>, ids: readonly string[]): Decision[] {
  return ids.flatMap((tool_use_id): Decision[] => {
    const read = Elicited.safeParse(answers[tool_use_id]);
    if (!read.success || read.data.action === "cancel") return [];
    const { decision, reason } = read.data.content ?? {};
    if (read.data.action === "accept" && decision === "allow") return [{ tool_use_id, result: "allow" }];
    if (read.data.action === "accept" && decision === undefined) return [];
    return [{ tool_use_id, result: "deny", ...(reason ? { deny_message: reason } : {}) }];
  });
}
