// Where a person's browser ends after the authorization: one address on this machine's loopback, for one answer.
//
//   P1  Only the answer with our own state counts; anything else is told so and changes nothing, so that no page can end or fake a connection.
//   P2  The browser is opened at a path that nobody else knows and that works once: the authorization's address, with its state, stands in no
//       process's arguments.
//   P3  What is shown holds nothing of what came, is kept by no cache and loads nothing.

import { randomBytes, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";

const HOST = "127.0.0.1";
const CALLBACK = "/callback";
const HEADERS = {
  "content-type": "text/html; charset=utf-8",
  "cache-control": "no-store",
  "referrer-policy": "no-referrer",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
};

/** What a redirect may bring, each at most once. */
const PARTS = ["state", "code", "iss", "error"] as const;
export type Callback = Readonly<Partial<Record<(typeof PARTS)[number], string>>>;

export interface Loopback {
  readonly redirectUri: string;
  /** Where the browser is to be opened, once, to go on to `authorizationUrl`. P2 */
  launchUrl(authorizationUrl: string): string;
  /** The answer with this state. `tell` says to the browser what came of it. Rejects when the signal does. P1 */
  answer(state: string, signal: AbortSignal): Promise<{ readonly callback: Callback; tell(isDone: boolean): void }>;
  close(): Promise<void>;
}

/** Listens; `port` 0: any. Rejects with the system's error. */
export async function openLoopback(port: number): Promise<Loopback> {
  let launch: { readonly path: string; readonly to: string } | null = null;
  let waiting: { readonly state: string; got(callback: Callback, response: ServerResponse): void } | null = null;

  const server = createServer((request, response) => {
    const url = new URL(request.url ?? "/", `http://${HOST}`);
    if (request.method !== "GET" || request.headers.host !== hostOf(server)) return page(response, 404, "There is nothing here.");
    if (launch !== null && url.pathname === launch.path) {
      const { to } = launch;
      launch = null;
      response.writeHead(302, { ...HEADERS, location: to }).end();
      return;
    }
    if (url.pathname !== CALLBACK) return page(response, 404, "There is nothing here.");
    const callback = callbackIn(request);
    if (callback === null || waiting === null || !isSame(callback.state ?? "", waiting.state))
      return page(response, 400, "This is not the answer that is waited for.");
    const { got } = waiting;
    waiting = null;
    got(callback, response);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, HOST, resolve);
  });

  return {
    redirectUri: `http://${hostOf(server)}${CALLBACK}`,
    launchUrl(to) {
      launch = { path: `/${randomBytes(24).toString("base64url")}`, to };
      return `http://${hostOf(server)}${launch.path}`;
    },
    answer: (state, signal) =>
      new Promise((resolve, reject) => {
        const stop = () => {
          waiting = null;
          reject(signal.reason);
        };
        signal.addEventListener("abort", stop, { once: true });
        if (signal.aborted) return stop();
        waiting = {
          state,
          got(callback, response) {
            signal.removeEventListener("abort", stop);
            const tell = (isDone: boolean) =>
              page(
                response,
                200,
                isDone ? "Connected. You can close this window." : "Not connected: the terminal says why. You can close this window.",
              );
            resolve({ callback, tell });
          },
        };
      }),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
        setTimeout(() => server.closeAllConnections(), CLOSE_MS).unref();
      }),
  };
}

const CLOSE_MS = 1_000;

function hostOf(server: Server): string {
  const address = server.address();
  return typeof address === "object" && address !== null ? `${HOST}:${address.port}` : "";
}

/** Null: something came twice, or not at all. */
function callbackIn(request: IncomingMessage): Callback | null {
  const { searchParams } = new URL(request.url ?? "/", `http://${HOST}`);
  const found: Partial<Record<(typeof PARTS)[number], string>> = {};
  for (const name of PARTS) {
    const [value, ...more] = searchParams.getAll(name);
    if (more.length > 0) return null;
    if (value !== undefined) found[name] = value;
  }
  return found.code === undefined && found.error === undefined ? null : found;
}

function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)];
  return a.length === b.length && timingSafeEqual(a, b);
}

function page(response: ServerResponse, status: number, says: string): void {
  response.writeHead(status, { ...HEADERS, connection: "close" }).end(`<!doctype html><title>Manyhands</title><p>${says}</p>\n`);
}
