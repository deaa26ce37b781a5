// What a registered hand is made from, and how it is shown.

import { z } from "zod";
import { HandName, RegisteredHand } from "../../hands/registry.ts";
import type { Document } from "../../session-store/documents.ts";
import { name as named, time } from "./answer-schema.ts";
import { VAULTS_MAX } from "./check-vaults.ts";
import { limit, page } from "./query.ts";
import { rfc3339 } from "./wire.ts";

const TOOLS_MAX = 1_000;
const LIMIT_MS_MIN = 100;
const CONNECT_MS_MAX = 55_000;
const LIMIT_MS_MAX = 86_400_000;

/** A user name or password in it would be a secret in a record (W1 of hands/registry.ts). */
const isPlainUrl = (text: string): boolean => {
  if (!URL.canParse(text)) return false;
  const { protocol, username, password } = new URL(text);
  return /^https?:$/.test(protocol) && username === "" && password === "";
};
const url = z.string().max(2_048).refine(isPlainUrl, "must be an http or https URL without a user name or password");
const toolName = z.string().min(1).max(255);

const Transport = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("http"), url }),
  z.strictObject({ type: z.literal("sse"), url }),
  z.strictObject({ type: z.literal("stdio"), server: z.string().min(1).max(255) }),
]);
const ms = (max: number) => z.int().min(LIMIT_MS_MIN).max(max).nullish();
const Timeouts = z.strictObject({ connect_ms: ms(CONNECT_MS_MAX), idle_ms: ms(LIMIT_MS_MAX), total_ms: ms(LIMIT_MS_MAX) });

const common = {
  description: z.string().max(2_048).nullish(),
  sharing: z.enum(["shared", "session"]).nullish(),
  vault_ids: z.array(z.string().min(1).max(128)).max(VAULTS_MAX).nullish(),
  allowed_tools: z.array(toolName).max(TOOLS_MAX).nullish(),
  timeouts: Timeouts.nullish(),
  allow_unreachable: z.boolean().nullish(),
};
export const HandCreate = z.strictObject({ name: HandName, transport: Transport, ...common });
export type HandCreate = z.infer<typeof HandCreate>;
export const HandUpdate = z.strictObject({ transport: Transport.optional(), ...common });
export type HandUpdate = z.infer<typeof HandUpdate>;
/** Left out: everything that is held back. */
export const HandApprove = z.strictObject({
  tools: z
    .array(z.strictObject({ name: toolName, hash: z.string().max(128).nullish() }))
    .max(TOOLS_MAX)
    .nullish(),
});
export const HandList = z.strictObject({ limit: limit(100, 20), page });

export const timeoutsOf = (given: z.infer<typeof Timeouts> | null | undefined): RegisteredHand["timeouts"] => ({
  connect_ms: given?.connect_ms ?? null,
  idle_ms: given?.idle_ms ?? null,
  total_ms: given?.total_ms ?? null,
});

const text = z.string();
const object = z.record(text, z.unknown());
const tool = { name: text, description: text, input_schema: object, annotations: object.optional(), hash: text };
const reason = z.enum(["changed", "new", "suspicious"]);
const shared = {
  id: text,
  type: z.literal("hand"),
  name: text,
  description: text,
  source: z.enum(["api", "file"]),
  transport: z.discriminatedUnion("type", [
    z.strictObject({ type: z.literal("http"), url: text }),
    z.strictObject({ type: z.literal("sse"), url: text }),
    z.strictObject({ type: z.literal("stdio"), server: text }),
  ]),
  sharing: z.enum(["shared", "session"]),
  vault_ids: z.array(text),
  allowed_tools: z.array(text).nullable(),
  timeouts: z.strictObject({ connect_ms: z.int().nullable(), idle_ms: z.int().nullable(), total_ms: z.int().nullable() }),
  missing: z.array(text),
  health: z.strictObject({
    status: z.enum(["unknown", "ready", "failed"]),
    checked_at: time.nullable(),
    error: text.nullable(),
    server: z.strictObject({ name: text, version: text }).nullable(),
    protocol_version: text.nullable(),
  }),
  created_at: time,
  updated_at: time,
};
export const Hand = named(
  "Hand",
  z.strictObject({
    ...shared,
    tools: z.array(z.strictObject(tool)).nullable(),
    held_back: z.array(z.strictObject({ ...tool, reason, says: text })),
  }),
);
/** In a list, where definitions would be too much. */
export const HandListed = named(
  "HandListed",
  z.strictObject({ ...shared, tools: z.array(text).nullable(), held_back: z.array(z.strictObject({ name: text, reason, says: text })) }),
);

export function wireOfHand(document: Document): z.infer<typeof Hand> {
  const { tools, held_back } = RegisteredHand.parse(document.body);
  return { ...sharedOf(document), tools, held_back: held_back.map((held) => ({ ...held, says: held.says ?? "" })) };
}

export function listedHand(document: Document): z.infer<typeof HandListed> {
  const { tools, held_back } = RegisteredHand.parse(document.body);
  return {
    ...sharedOf(document),
    tools: tools?.map(({ name }) => name) ?? null,
    held_back: held_back.map((held) => ({ name: held.name, reason: held.reason, says: held.says ?? "" })),
  };
}

function sharedOf(document: Document) {
  const { name, description, source, transport, sharing, vault_ids, allowed_tools, timeouts, missing, health } = RegisteredHand.parse(document.body);
  return {
    id: name,
    type: "hand" as const,
    name,
    description,
    source: source ?? "api",
    transport,
    sharing,
    vault_ids,
    allowed_tools,
    timeouts,
    missing: missing ?? [],
    health: { ...health, checked_at: health.checked_at === null ? null : rfc3339(health.checked_at) },
    created_at: rfc3339(document.createdAt),
    updated_at: rfc3339(document.updatedAt),
  };
}
