// JSON-RPC as the relay of a child reads it: the envelope alone. What is in it passes as it is.

import { z } from "zod";

export const METHOD_NOT_FOUND = -32_601;
export const INVALID_REQUEST = -32_600;
export const PARSE_ERROR = -32_700;
export const REFUSED = -32_000;
export const NO_SESSION = -32_001;

export type Id = string | number;
export type Params = Readonly<Record<string, unknown>>;

export interface Envelope {
  readonly jsonrpc: "2.0";
  readonly id?: Id;
  readonly method?: string;
  readonly params?: Params;
  readonly result?: unknown;
  readonly error?: unknown;
}

const Read = z.looseObject({
  jsonrpc: z.literal("2.0"),
  id: z.union([z.string().max(1_024), z.int()]).optional(),
  method: z.string().max(256).optional(),
  params: z.record(z.string(), z.unknown()).optional(),
});

/** Null: it is no message. */
export function readEnvelope(given: unknown): Envelope | null {
  const read = Read.safeParse(given);
  if (!read.success) return null;
  const { method, id } = read.data;
  const isResponse = Object.hasOwn(read.data, "result") !== Object.hasOwn(read.data, "error");
  if (method === undefined ? !isResponse || id === undefined : isResponse) return null;
  // What was not looked at is left as it was given, in its order.
  return given as Envelope;
}

export const errorOf = (id: Id | null, code: number, message: string, data?: unknown) => ({
  jsonrpc: "2.0" as const,
  id,
  error: { code, message, ...(data !== undefined && { data }) },
});

export const keyOf = (id: Id): string => `${typeof id}:${id}`;

/** The same parameters with one key of `_meta` set. */
export function withMeta(params: Params | undefined, key: string, value: unknown): Params {
  return { ...params, _meta: { ...metaOf(params), [key]: value } };
}

export function metaOf(params: Params | undefined): Params {
  const meta = params?._meta;
  return typeof meta === "object" && meta !== null ? { ...meta } : {};
}
