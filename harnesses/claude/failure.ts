// What went wrong with a model request, in the host's terms: its type, whether a later try may succeed, and how long the server asked to wait.

import { APIConnectionTimeoutError, APIError } from "@anthropic-ai/sdk";
import type { ModelFailure } from "../harness.ts";

const MESSAGE_CHARS_MAX = 1_000;
const TRANSIENT_4XX = new Set([408, 409, 429]);

export function failureOf(error: unknown): ModelFailure {
  if (error instanceof APIError && (error.status !== undefined || error.type !== null)) return answered(error);
  const isSilent = error instanceof APIConnectionTimeoutError || codesOf(error).some((code) => code.endsWith("TIMEOUT"));
  if (isSilent) return unreachable("The model's answer stalled.");
  if (error instanceof SyntaxError) return unreachable("The model's answer was garbled.");
  return unreachable("The connection to the model was cut or could not be made.");
}

/** The server said no, by a status or by an error event inside its stream. */
function answered(error: APIError): ModelFailure {
  const { status, type: kind } = error;
  const retryAfterMs = retryAfterOf(error.headers);
  const words = error.apiMessage ?? "The model request failed.";
  // Clients send a key of this installation in a header of the same name: it is not that one.
  const said = status === 401 || kind === "authentication_error" ? `The model's provider did not take its key: ${words}` : words;
  return {
    type: typeOf(status, kind),
    message: cut(status === undefined ? said : `${said} (status ${status})`),
    isTransient: status === undefined ? isPassing(kind) : status >= 500 || TRANSIENT_4XX.has(status),
    ...(retryAfterMs === null ? {} : { retryAfterMs }),
  };
}

function typeOf(status: number | undefined, kind: string | null): ModelFailure["type"] {
  if (status === 529 || kind === "overloaded_error") return "model_overloaded_error";
  if (status === 429 || kind === "rate_limit_error") return "model_rate_limited_error";
  return "model_request_failed_error";
}

const FINAL = new Set(["invalid_request_error", "authentication_error", "permission_error", "not_found_error", "request_too_large", "billing_error"]);
const isPassing = (kind: string | null): boolean => kind === null || !FINAL.has(kind);

const unreachable = (message: string): ModelFailure => ({ type: "model_request_failed_error", message, isTransient: true });

/** Codes of an error and of what caused it. */
function codesOf(error: unknown): string[] {
  const codes: string[] = [];
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth += 1) {
    codes.push("code" in at && typeof at.code === "string" ? at.code : "");
  }
  return codes;
}

/** `retry-after-ms`, or `retry-after` in seconds or as a date. */
export function retryAfterOf(headers: Headers | undefined, now = Date.now()): number | null {
  const ms = Number(headers?.get("retry-after-ms") ?? Number.NaN);
  if (Number.isFinite(ms) && ms >= 0) return ms;
  const text = headers?.get("retry-after");
  if (!text) return null;
  const seconds = Number(text);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
  const date = Date.parse(text);
  return Number.isNaN(date) ? null : Math.max(0, date - now);
}

/** Steps back to a whole character. */
function cut(text: string): string {
  return text.length <= MESSAGE_CHARS_MAX
    ? text
    : `${text
        .slice(0, MESSAGE_CHARS_MAX)
        .toWellFormed()
        .replace(/\uFFFD$/, "")}…`;
}
