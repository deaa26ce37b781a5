// The container engine's API: where it is, how long a request may take, and what its errors mean.

import Docker from "dockerode";
import { z } from "zod";

/** A request that does not start or end a container. */
export const ASK_MS = 10_000;

/** Where an engine listens. It must be on this machine: the hands' folders are mounted from here. */
export type EngineAddress = { readonly socketPath: string } | { readonly host: string; readonly port: number };

export type Engine = Docker;

/** Null: not an address that can be used. */
export function parseAddress(text: string): EngineAddress | null {
  if (text.startsWith("unix://")) return text.length > "unix://".length ? { socketPath: text.slice("unix://".length) } : null;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || (url.protocol !== "tcp:" && url.protocol !== "http:") || url.hostname === "" || url.port === "") return null;
  return { host: url.hostname, port: Number(url.port) };
}

export function connect(address: EngineAddress): Engine {
  // What isn't said here the client would take from the environment.
  if ("socketPath" in address) return new Docker({ socketPath: address.socketPath, host: undefined, port: undefined, protocol: "http" });
  return new Docker({ host: address.host, port: address.port, socketPath: undefined, protocol: "http" });
}

/** A request with a deadline. */
export async function within<T>(ms: number, ask: (abortSignal: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      const error = new EngineSilent(`the container engine did not answer within ${ms} ms`);
      late.abort(error);
      reject(error);
    }, ms);
  });
  try {
    return await Promise.race([ask(late.signal), deadline]);
  } finally {
    clearTimeout(timer);
  }
}

class EngineSilent extends Error {
  override readonly name = "EngineSilent";
}

const HttpError = z.object({ statusCode: z.number(), json: z.object({ message: z.string() }).nullish().catch(null) });
const SystemError = z.object({ code: z.string() });

/** The engine's HTTP status; null: there was no answer. */
export function statusOf(error: unknown): number | null {
  const read = HttpError.safeParse(error);
  return read.success ? read.data.statusCode : null;
}

/** What the engine answered. Whatever lies between it and this program may have made something else of that. */
export function readAnswer<T>(schema: z.ZodType<T>, said: unknown): T {
  const read = schema.safeParse(said);
  if (read.success) return read.data;
  throw new EngineGarbled("the container engine said something that can't be read");
}

class EngineGarbled extends Error {
  override readonly name = "EngineGarbled";
}

/** A 404 may also speak of a container, or of an exec in it. */
export function isImageMissing(error: unknown): boolean {
  return statusOf(error) === 404 && /no such image|image not known/i.test(worded(error));
}

/** An engine's error in a few words, for the model and the log; anything else is a bug and is thrown on. */
export function worded(error: unknown): string {
  if (error instanceof EngineSilent || error instanceof EngineGarbled) return error.message;
  const http = HttpError.safeParse(error);
  if (http.success) return `the container engine says ${http.data.statusCode}: ${(http.data.json?.message ?? "").slice(0, 300)}`;
  const system = SystemError.safeParse(error);
  if (system.success) return `the container engine can't be reached (${system.data.code})`;
  throw error;
}
