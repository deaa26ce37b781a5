// JSON-RPC as MCP speaks it: one message a body, ids that keep their type.
//
//   J1  An id is a string or a whole number, and comes back as it was sent: 1 is not "1", 0 is an id.
//   J2  A batch is no message: who may send one has it taken apart before (batch.ts).
//   J3  An error says what the caller can do about it; of a bug it says nothing but that it happened.

import { z } from "zod";

const ID_CHARS_MAX = 1_024;
const METHOD_CHARS_MAX = 256;

export const PARSE_ERROR = -32_700;
export const INVALID_REQUEST = -32_600;
export const METHOD_NOT_FOUND = -32_601;
export const INVALID_PARAMS = -32_602;
export const INTERNAL_ERROR = -32_603;
/** Ours, for what the transport refuses. */
export const REFUSED = -32_000;
/** A session that is not there, as the official servers say it. */
export const NO_SESSION = -32_001;
const RESOURCE_NOT_FOUND = -32_002;

export type RpcId = string | number;

export type Message =
  | { readonly kind: "request"; readonly id: RpcId; readonly method: string; readonly params: Readonly<Record<string, unknown>> }
  | { readonly kind: "notification"; readonly method: string; readonly params: Readonly<Record<string, unknown>> }
  | { readonly kind: "response"; readonly id: RpcId; readonly answer: Answered };

export type Answered = { readonly result: unknown } | { readonly error: unknown };

/** An expected "no" of the protocol. `status` is for HTTP, where the error is the whole answer. */
export class RpcError extends Error {
  override readonly name = "RpcError";
  readonly code: number;
  readonly data: unknown;
  readonly status: number;

  constructor(code: number, says: string, options: { readonly data?: unknown; readonly status?: number } = {}) {
    super(says);
    this.code = code;
    this.data = options.data;
    this.status = options.status ?? 400;
  }
}

/** The stateless era counts an unknown resource among the invalid parameters. */
export function noResource(uri: string, era: "handshake" | "stateless"): RpcError {
  return new RpcError(era === "stateless" ? INVALID_PARAMS : RESOURCE_NOT_FOUND, "There is no such resource.", { data: { uri } });
}

const Envelope = z.looseObject({
  jsonrpc: z.literal("2.0"),
  method: z.string().max(METHOD_CHARS_MAX).optional(),
  params: z.record(z.string(), z.unknown()).optional(),
});

/** Reads one message. The usual request and notification are told at a glance; everything else is judged by the schema. J1 J2 */
export function readMessage(body: unknown): Message {
  return usualIn(body) ?? judged(body);
}

function usualIn(body: unknown): Message | null {
  if (!isRecord(body) || body.jsonrpc !== "2.0") return null;
  const { method, params } = body;
  if (typeof method !== "string" || method.length > METHOD_CHARS_MAX) return null;
  if (!isRecord(params) || Object.hasOwn(params, "__proto__")) return null;
  if (!Object.hasOwn(body, "id")) return { kind: "notification", method, params };
  return isId(body.id) ? { kind: "request", id: body.id, method, params } : null;
}

function judged(body: unknown): Message {
  if (Array.isArray(body)) throw new RpcError(INVALID_REQUEST, "A batch within a batch is no message.");
  const read = Envelope.safeParse(body);
  if (!read.success) throw new RpcError(INVALID_REQUEST, "The body is not a JSON-RPC 2.0 message.");
  const { method, params = {}, ...rest } = read.data;
  if (method === undefined) return { kind: "response", id: idOf(rest.id), answer: answerOf(rest) };
  if (!Object.hasOwn(rest, "id")) return { kind: "notification", method, params };
  return { kind: "request", id: idOf(rest.id), method, params };
}

function answerOf(rest: Readonly<Record<string, unknown>>): Answered {
  if (Object.hasOwn(rest, "result") === Object.hasOwn(rest, "error")) throw new RpcError(INVALID_REQUEST, "A response holds a result or an error.");
  return Object.hasOwn(rest, "error") ? { error: rest.error } : { result: rest.result };
}

function idOf(given: unknown): RpcId {
  if (!isId(given)) throw new RpcError(INVALID_REQUEST, "id: must be a string or a whole number");
  return given;
}

const isId = (value: unknown): value is RpcId => (typeof value === "string" ? value.length <= ID_CHARS_MAX : Number.isSafeInteger(value));
export const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The id to answer an unreadable body with, if one can be told. */
export function idIn(body: unknown): RpcId | null {
  return isRecord(body) && isId(body.id) ? body.id : null;
}

/** An id as a key that keeps its type. J1 */
export const keyOf = (id: RpcId): string => `${typeof id === "number" ? "n" : "s"}:${id}`;

export const resultMessage = (id: RpcId, result: object) => ({ jsonrpc: "2.0", id, result });
export const errorMessage = (id: RpcId | null, { code, message, data }: { code: number; message: string; data?: unknown }) => ({
  jsonrpc: "2.0",
  id,
  error: { code, message, ...(data !== undefined && { data }) },
});
