// One HTTP request of a hand and its answer, passed on.
//
//   X1  Both bodies stream: nothing is kept, and who does not read holds up the other side.
//   X2  The request goes to the place that was judged, with that place in its Host, whatever the caller wrote there. Redirects are the caller's to follow:
//       its next request is judged anew.
//   X3  Credentials are put in, and answers looked through, by an `Insertion`, where there is one; without one nothing of a message is read.
//   X4  An answer that breaks off breaks off for the caller as well: it is never made to look whole.

import { type ClientRequest, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Duplex, pipeline, type Readable } from "node:stream";
import { flat, type Pair, passing } from "./headers.ts";
import type { Place } from "./place.ts";
import { Denied } from "./says.ts";

/** How long either side may say nothing. */
const IDLE_MS = 300_000;

/** What is done to a request and its answer on their way. */
export interface Insertion {
  /** The request's headers, and what its body passes through (null: as it is). Throws `Denied`. */
  request(
    headers: readonly Pair[],
    body: IncomingMessage | null,
  ): Promise<{ readonly headers: readonly Pair[]; readonly body: Readable | Buffer | null }>;
  /** The same of the answer; `isBare`: one that has no body, whatever its headers say. Throws `Denied`. */
  answer(headers: readonly Pair[], isBare: boolean): { readonly headers: readonly Pair[]; readonly through: readonly Duplex[] };
}

export interface Onward {
  readonly place: Place;
  /** Path and query. */
  readonly path: string;
  readonly impliedPort: number;
  open(): Promise<Socket>;
  readonly insertion: Insertion | null;
}

export interface Passed {
  readonly status: number;
  readonly isCut: boolean;
}

/** Throws `Denied` while nothing was answered; resolves when the answer is over. */
export async function pass(req: IncomingMessage, res: ServerResponse, { place, path, impliedPort, open, insertion }: Onward): Promise<Passed> {
  const given = hasBody(req) ? req : null;
  const plain = passing(req.rawHeaders, ["host"]);
  const { headers, body } = insertion === null ? { headers: plain, body: given } : await insertion.request(plain, given);
  const socket = await open();
  if (res.destroyed) {
    socket.destroy();
    throw new Denied("ended", place);
  }
  const host = place.port === impliedPort ? place.text.slice(0, place.text.lastIndexOf(":")) : place.text;
  const hasLength = headers.some(([name]) => name.toLowerCase() === "content-length");
  const upstream = begin(socket, place, {
    method: req.method,
    path,
    headers: flat([
      ["Host", host],
      ...headers,
      ...(body !== null && !hasLength ? [["Transfer-Encoding", "chunked"] as const] : []),
      ["Connection", "close"],
    ]),
  });
  const timer = setTimeout(() => upstream.destroy(new Denied("silent", place)), IDLE_MS);
  const cut = () => upstream.destroy(new Denied("ended", place));
  res.once("close", cut);
  try {
    const answered = new Promise<IncomingMessage>((resolve, reject) => {
      upstream.once("response", resolve);
      upstream.once("error", reject);
      upstream.once("upgrade", (_answer, line) => {
        line.destroy();
        reject(new Denied("no_upgrade", place));
      });
      upstream.once("close", () => reject(new Denied("unreachable", place, "closed")));
    });
    send(body, upstream, timer);
    const answer = await answered;
    // It may answer before it has all of the body, and not want the rest.
    upstream.on("error", () => {});
    return await giveBack(answer, res, { method: req.method, insertion, timer });
  } catch (error) {
    throw error instanceof Denied ? error : new Denied("unreachable", place, codeOf(error));
  } finally {
    clearTimeout(timer);
    res.off("close", cut);
    upstream.destroy();
  }
}

/** What a parser let in and a writer does not let out is the caller's mistake. */
function begin(socket: Socket, place: Place, options: { method: string | undefined; path: string; headers: string[] }): ClientRequest {
  try {
    return request({ ...options, createConnection: () => socket });
  } catch (error) {
    socket.destroy();
    throw new Denied("not_a_place", place, codeOf(error));
  }
}

function send(body: Readable | Buffer | null, upstream: ClientRequest, timer: NodeJS.Timeout): void {
  if (body === null || Buffer.isBuffer(body)) {
    upstream.end(body ?? undefined);
    return;
  }
  body.on("data", () => timer.refresh());
  body.once("error", (error) => upstream.destroy(error));
  body.pipe(upstream);
}

interface GiveBack {
  readonly method: string | undefined;
  readonly insertion: Insertion | null;
  readonly timer: NodeJS.Timeout;
}

async function giveBack(answer: IncomingMessage, res: ServerResponse, { method, insertion, timer }: GiveBack): Promise<Passed> {
  const status = answer.statusCode ?? 502;
  const plain = passing(answer.rawHeaders);
  const isBare = method === "HEAD" || status === 204 || status === 304;
  const { headers, through } = insertion === null ? { headers: plain, through: [] } : insertion.answer(plain, isBare);
  res.writeHead(status, answer.statusMessage, flat(headers));
  answer.on("data", () => timer.refresh());
  return await new Promise<Passed>((resolve) => {
    pipeline([answer, ...through, res], (error) => {
      if (error) res.destroy(); // X4
      resolve({ status, isCut: error !== null && error !== undefined });
    });
  });
}

const hasBody = (req: IncomingMessage): boolean =>
  req.headers["transfer-encoding"] !== undefined || (req.headers["content-length"] !== undefined && req.headers["content-length"] !== "0");

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "unknown";
}
