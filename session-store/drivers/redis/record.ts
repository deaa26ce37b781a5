// A session's record, from its meta hash: one read, so that it is whole.

import type { Fence, SessionId } from "../../ids.ts";
import { position } from "../../ids.ts";
import { Refusal } from "../../refusal.ts";
import type { SessionRecord } from "../../session.ts";
import { pairs, text, whole } from "./reply.ts";

const FIELD = "p:";

/** Null for an unknown session and for a removed one. */
export function recordOf(hash: unknown): SessionRecord | null {
  const facts = pairs(hash);
  if (!facts.has("head")) return null;
  const dueAt = facts.get("due");
  const projection: Record<string, unknown> = {};
  for (const [name, value] of facts) if (name.startsWith(FIELD)) projection[name.slice(FIELD.length)] = JSON.parse(value);
  return {
    id: text(facts.get("id")) as SessionId,
    workspace: text(facts.get("workspace")),
    createdAt: whole(facts.get("created")),
    updatedAt: whole(facts.get("time")),
    head: position(whole(facts.get("head"))),
    gate: position(whole(facts.get("gate"))),
    fence: whole(facts.get("fence")) as Fence,
    isHeld: facts.get("held") === "1",
    dueAt: dueAt === undefined ? null : whole(dueAt),
    projection,
  };
}

export function knownRecord(hash: unknown): SessionRecord {
  const record = recordOf(hash);
  if (!record) throw new Refusal("session_not_found");
  return record;
}
