// How an HTTP server of ours listens: with limits on what a slow or careless client can hold, and with patience for a port that is just becoming free.

import type { RequestListener, Server, ServerResponse } from "node:http";
import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { mint } from "../session-store/ids.ts";
import { envelope } from "./answer.ts";
import { SettingError } from "./config.ts";

/** A client has this long to send its headers, and this long to send a whole request (32 MB at most); neither limits an answer, however long it streams. */
const HEADERS_MS = 20_000;
const REQUEST_MS = 120_000;
/** Longer than common load balancers keep an idle connection, so that it is they who close it. */
const KEEP_ALIVE_MS = 75_000;
const CONNECTIONS_MAX = 20_000;
/** Requests of one connection that wait for the answers before them. */
const WAITING_MAX = 64;
/** For an answer to what was no request, to get out. */
const LINGER_MS = 1_000;
const PORT_WAIT_MS = 10_000;
const PORT_RETRY_MS = 200;

/** Option of `createServer`; Node can't change it afterwards. */
export const HEADER_BYTES_MAX = 16_384;

export function harden(server: Server): void {
  server.headersTimeout = HEADERS_MS;
  server.requestTimeout = REQUEST_MS;
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  server.maxConnections = CONNECTIONS_MAX;
  const answers = new WeakMap<Duplex, ServerResponse>();
  server.on("request", (request, response) => answers.set(request.socket, response));
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const answer = answers.get(socket);
    // In the middle of another answer nothing can be said.
    if (!socket.writable || error.code === "ECONNRESET" || (answer?.headersSent && !answer.writableFinished)) socket.destroy();
    else answerNoRequest(error.code, socket);
  });
  // An expectation that we do not know is no reason to answer without an envelope: the request itself is answered.
  server.on("checkExpectation", (request, response) => server.emit("request", request, response));
}

/**
 * A request that was sent before the one before it was answered waits for its turn. Begun at once it would write to no socket: nothing says that its client
 * went away, and nothing drains.
 */
export function inTurn(serve: RequestListener): RequestListener {
  const waiting = new WeakMap<Duplex, number>();
  return (request, response) => {
    if (response.socket) return void serve(request, response);
    const { socket } = request;
    const count = (waiting.get(socket) ?? 0) + 1;
    waiting.set(socket, count);
    if (count > WAITING_MAX) return void socket.destroy();
    response.once("socket", () => {
      waiting.set(socket, (waiting.get(socket) ?? 1) - 1);
      serve(request, response);
    });
  };
}

const NO_REQUEST: Readonly<Record<string, { readonly status: number; readonly says: string }>> = {
  HPE_HEADER_OVERFLOW: { status: 431, says: `The request's headers are over the limit of ${HEADER_BYTES_MAX} bytes.` },
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, says: "The request did not come in time." },
};

/** What could not be read as a request is answered with an envelope, too, and the connection ends. */
function answerNoRequest(code: string | undefined, socket: Duplex): void {
  const { status, says } = NO_REQUEST[code ?? ""] ?? { status: 400, says: "The request is not valid HTTP." };
  const requestId = mint("req");
  const body = JSON.stringify(envelope("invalid_request_error", says, requestId));
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    `request-id: ${requestId}`,
    "content-type: application/json",
    `content-length: ${Buffer.byteLength(body)}`,
    "connection: close",
  ];
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
  // Whoever sent it may go on sending, or never leave.
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}

/** Listens and gives the port. Waits up to ten seconds for a taken one; then, and for an address that is not ours, a `SettingError`. */
export async function listen(server: Server, host: string, port: number, waitMs = PORT_WAIT_MS): Promise<number> {
  const deadline = performance.now() + waitMs;
  for (;;) {
    const code = await tryListen(server, host, port);
    if (code === null) break;
    if (code === "EADDRINUSE" && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, PORT_RETRY_MS));
    else throw new SettingError(explain(code, host, port));
  }
  const address = server.address();
  return typeof address === "object" && address ? address.port : port;
}

function explain(code: string, host: string, port: number): string {
  if (code === "EADDRINUSE") return `Port ${port} on ${host} is taken by another program. Stop that one, or choose another MANYHANDS_PORT.`;
  if (code === "EACCES") return `Port ${port} on ${host} may not be opened by this user. Choose another MANYHANDS_PORT.`;
  return `${host} can't be listened on (${code}). Check MANYHANDS_HOST.`;
}

/** Null when it listens, else the system's error code. */
function tryListen(server: Server, host: string, port: number): Promise<string | null> {
  return new Promise((resolve, reject) => {
    const failed = (error: NodeJS.ErrnoException) => {
      server.off("listening", listening);
      if (error.code === undefined) reject(error);
      else resolve(error.code);
    };
    const listening = () => {
      server.off("error", failed);
      resolve(null);
    };
    server.once("error", failed);
    server.once("listening", listening);
    server.listen(port, host);
  });
}
