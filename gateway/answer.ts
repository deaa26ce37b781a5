// From a thrown value to an answer on the wire: the one table between a Refusal and HTTP (contract §1.3).
//
//   W1  A refusal's own words go to the caller; its `detail` and everything about a bug go to our log only.
//   W2  `x-should-retry: false` wherever another try can't help (every 409) or might do it twice (`store_in_doubt`).

import { z } from "zod";
import { REFUSALS, Refusal } from "../session-store/refusal.ts";

const RETRY_AFTER_S = 1;

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
}

/** The error envelope. */
export const ErrorEnvelope = z.strictObject({
  type: z.literal("error"),
  error: z.strictObject({
    type: z.enum([...new Set(Object.values(REFUSALS).map(({ wire }) => wire))]),
    message: z.string(),
    details: z.record(z.string(), z.unknown()).optional(),
  }),
  request_id: z.string(),
});
type ErrorEnvelope = z.infer<typeof ErrorEnvelope>;

/** W1 */
export function envelope(
  type: ErrorEnvelope["error"]["type"],
  message: string,
  requestId: string,
  details?: Readonly<Record<string, unknown>>,
): ErrorEnvelope {
  return { type: "error", error: { type, message, ...(details && { details }) }, request_id: requestId };
}

export function answerOf(error: unknown, requestId: string): ErrorAnswer {
  if (!(error instanceof Refusal))
    return { status: 500, headers: {}, body: envelope("api_error", `Internal server error. Request id: ${requestId}`, requestId) };
  const { status, wire, retry } = REFUSALS[error.code];
  const headers: Record<string, string> = {};
  if (retry === "later") headers["retry-after"] = String(RETRY_AFTER_S);
  if (retry === "ask" || (retry === "never" && status === 409)) headers["x-should-retry"] = "false";
  return { status, headers, body: envelope(wire, error.message, requestId, error.details) };
}

/** A refusal for the caller's own mistake, named by its path. */
export const invalid = (message: string, details?: Record<string, unknown>): Refusal =>
  new Refusal("invalid_request", message, details && { details });
