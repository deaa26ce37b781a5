// The door of a hand's container, from the host's side: a socket in the hand's folder, and every connection to it passed on to the vault proxy's egress
// endpoint under the session's grant of that moment. What goes through is not looked at here.
//
//   O1  There is a door only for a session that came with a way out. What it may reach is the vault proxy's to judge; here nothing is opened or closed
//       by a name.
//   O2  The grant and the policy are kept in memory, the newest that a worker brought; an older worker's are not taken.
//   O3  A program that finds the vault proxy away, or the grant ended, is told so in words of HTTP, which is what it speaks to a proxy.
//   O4  A hand's environment holds what is public: where the proxy is, a certificate, and placeholders. The certificates lie in a folder that the
//       container can't write.

import { chmod, open, rm, writeFile } from "node:fs/promises";
import { type IncomingMessage, request as plainRequest } from "node:http";
import { request as secureRequest } from "node:https";
import { connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import type { Duplex } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { connect as connectTls, rootCertificates } from "node:tls";
import type { Logger } from "pino";
import { z } from "zod";
import type { WayOut } from "../hand.ts";
import { DOOR_FOLDER, DOOR_PORT } from "./protocol.ts";

const CONNECTIONS_MAX = 128;
const ASK_MS = 5_000;
const ASK_TRIES_MAX = 10;
const ASK_RETRY_MS = 300;
const ANSWER_BYTES_MAX = 1024 * 1024;
const SESSIONS_MAX = 10_000;
/** The longest path that a socket can have. */
const SOCKET_PATH_MAX = 100;
const SOCKET = "door.sock";

const CA = "ca.pem";
const BUNDLE = "ca-bundle.pem";
const PROXY = `http://127.0.0.1:${DOOR_PORT}`;
const NO_PROXY = "localhost,127.0.0.1,::1";

const Environment = z.object({
  variables: z.array(z.object({ name: z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,254}$/), placeholder: z.string().regex(/^[0-9A-Za-z_]{1,200}$/) })),
  certificate: z.string().max(20_000).nullable(),
});

/** Names that a session's variables can't take: without them a shell, or its way out, would not work. */
const KEPT = new Set(["PATH", "HOME", "PWD", "SHELL", "USER", "LANG", "TMPDIR", "BASH_ENV", "ENV", "IFS"]);

export interface OpenDoor {
  /** `NAME=value`, for everything that runs in the container. */
  readonly environment: readonly string[];
  close(): Promise<void>;
}

/** There is a way out, and it can't be made ready; the message says why. */
export class DoorError extends Error {
  override readonly name = "DoorError";
}

export class Doors {
  readonly #vaultUrl: URL | null;
  readonly #log: Logger;
  readonly #ways = new Map<string, WayOut & { readonly fence: number }>();

  constructor(vaultUrl: string | null, log: Logger) {
    this.#vaultUrl = vaultUrl === null ? null : new URL(vaultUrl);
    this.#log = log;
  }

  /** O2 */
  admit({ session, fence }: { readonly session: string; readonly fence: number }, way: WayOut): void {
    if ((this.#ways.get(session)?.fence ?? 0) > fence) return;
    this.#ways.delete(session);
    this.#ways.set(session, { ...way, fence });
    const [oldest] = this.#ways.keys();
    if (this.#ways.size > SESSIONS_MAX && oldest !== undefined) this.#ways.delete(oldest);
  }

  /** Null: the session has no way out. Throws `DoorError`. O1 */
  async open(session: string, folder: string): Promise<OpenDoor | null> {
    const vaultUrl = this.#vaultUrl;
    if (vaultUrl === null || !this.#ways.has(session)) return null;
    const { variables, certificate } = await this.#ask(vaultUrl, session);
    if (certificate !== null) {
      await writeFile(join(folder, CA), certificate, { mode: 0o644 });
      await writeFile(join(folder, BUNDLE), [...rootCertificates, certificate].join("\n"), { mode: 0o644 });
    }
    const listener = await listen(folder, (inside) => this.#pass(vaultUrl, session, inside));
    const own = variables.filter(({ name }) => !KEPT.has(name)).map(({ name, placeholder }) => `${name}=${placeholder}`);
    return {
      environment: [...own, ...proxyVariables(), ...(certificate === null ? [] : trustVariables())],
      close: () => listener.close(),
    };
  }

  /** A vault proxy on its way up is waited for. */
  async #ask(vaultUrl: URL, session: string): Promise<z.infer<typeof Environment>> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await askEnvironment(new URL("/egress/environment", vaultUrl), this.#ways.get(session)?.grant ?? "");
      } catch (error) {
        const says = error instanceof DoorError ? error.message : `the vault proxy can't be reached (${codeOf(error)})`;
        if (error instanceof DoorError || tries >= ASK_TRIES_MAX) throw new DoorError(`its way out can't be made ready: ${says}`);
      }
      await sleep(ASK_RETRY_MS);
    }
  }

  #pass(vaultUrl: URL, session: string, inside: Socket): void {
    const way = this.#ways.get(session);
    if (way === undefined) {
      tell(inside, 503, "the session's way out is closed");
      return;
    }
    const asked = ask(vaultUrl, { method: "CONNECT", path: "egress:1", grant: way.grant });
    const timer = setTimeout(() => asked.destroy(new Error("it did not answer in time")), ASK_MS);
    const given = (): void => clearTimeout(timer);
    const leave = (): void => void asked.destroy();
    inside.once("close", leave);
    asked.once("connect", (answer: IncomingMessage, outside: Duplex, head: Buffer) => {
      given();
      inside.off("close", leave);
      if (answer.statusCode !== 200) {
        outside.destroy();
        const says = answer.statusCode === 529 ? "too many connections of this session are open" : "the session's grant is not taken; try again";
        this.#log.warn({ sessionId: session, status: answer.statusCode }, "door.refused");
        return tell(inside, 503, says);
      }
      if (head.length > 0) outside.unshift(head);
      const policy = Buffer.from(way.network, "utf8");
      const length = Buffer.alloc(4);
      length.writeUInt32BE(policy.length);
      outside.write(Buffer.concat([length, policy]));
      pipeBoth(inside, outside);
    });
    asked.once("response", (answer) => {
      given();
      answer.resume();
      tell(inside, 503, "the vault proxy does not take it");
    });
    asked.once("error", (error) => {
      given();
      this.#log.warn({ sessionId: session, code: codeOf(error) }, "door.away");
      tell(inside, 502, "the vault proxy can't be reached; try again");
    });
    asked.end();
  }
}

function proxyVariables(): string[] {
  const proxies = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"].map((name) => `${name}=${PROXY}`);
  return [...proxies, `no_proxy=${NO_PROXY}`, `NO_PROXY=${NO_PROXY}`, "NODE_USE_ENV_PROXY=1"];
}

/** O4. Node adds to what it trusts; the others are given a bundle that begins with the usual authorities. */
function trustVariables(): string[] {
  const bundle = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "CARGO_HTTP_CAINFO"];
  return [...bundle.map((name) => `${name}=${DOOR_FOLDER}/${BUNDLE}`), `NODE_EXTRA_CA_CERTS=${DOOR_FOLDER}/${CA}`];
}

interface Listener {
  close(): Promise<void>;
}

/** A socket's path is short; a long one is reached through its folder's descriptor. */
async function listen(folder: string, take: (inside: Socket) => void): Promise<Listener> {
  const path = join(folder, SOCKET);
  await rm(path, { force: true });
  const place = path.length > SOCKET_PATH_MAX ? await open(folder, "r") : null;
  const open_ = new Set<Socket>();
  const server: Server = createServer({ allowHalfOpen: true }, (inside) => {
    open_.add(inside);
    inside.on("error", () => {});
    inside.once("close", () => open_.delete(inside));
    take(inside);
  });
  server.maxConnections = CONNECTIONS_MAX;
  try {
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(place === null ? path : `/proc/self/fd/${place.fd}/${SOCKET}`, () => resolve());
    });
    // Commands run as another user than the host.
    await chmod(path, 0o666);
  } catch (error) {
    server.close();
    await place?.close();
    throw new DoorError(`its door can't be opened (${codeOf(error)})`);
  }
  return {
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const inside of open_) inside.destroy();
      await closed;
      await place?.close();
      await rm(path, { force: true });
    },
  };
}

function ask(url: URL, { method, path, grant }: { readonly method: string; readonly path: string; readonly grant: string }) {
  const isSecure = url.protocol === "https:";
  const port = Number(url.port || (isSecure ? 443 : 80));
  const host = url.hostname.replace(/^\[|\]$/g, "");
  return (isSecure ? secureRequest : plainRequest)({
    method,
    path,
    headers: { host: url.host, authorization: `Bearer ${grant}` },
    createConnection: () => (isSecure ? connectTls({ host, port, servername: host }) : connect({ host, port, allowHalfOpen: true })),
  });
}

function askEnvironment(url: URL, grant: string): Promise<z.infer<typeof Environment>> {
  return new Promise((resolve, reject) => {
    const asked = ask(url, { method: "GET", path: url.pathname, grant });
    const timer = setTimeout(() => asked.destroy(new Error("late")), ASK_MS);
    asked.once("error", reject);
    asked.once("close", () => {
      clearTimeout(timer);
      reject(new Error("closed"));
    });
    asked.once("response", (answer) => {
      const pieces: Buffer[] = [];
      let bytes = 0;
      answer.on("data", (piece: Buffer) => {
        bytes += piece.length;
        if (bytes > ANSWER_BYTES_MAX) answer.destroy(new Error("too long"));
        else pieces.push(piece);
      });
      answer.once("error", reject);
      answer.once("end", () => {
        if (answer.statusCode !== 200) return reject(new DoorError(`the vault proxy answered ${answer.statusCode}`));
        const read = Environment.safeParse(parsed(Buffer.concat(pieces).toString("utf8")));
        if (read.success) resolve(read.data);
        else reject(new DoorError("the vault proxy's answer is garbled"));
      });
    });
    asked.end();
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function pipeBoth(inside: Duplex, outside: Duplex): void {
  for (const [from, to] of [
    [inside, outside],
    [outside, inside],
  ] as const) {
    from.on("error", () => to.destroy());
    from.on("close", () => {
      // Closed before both its directions had ended: the other side hears of it as a break.
      if (!from.readableEnded || !from.writableFinished) to.destroy();
    });
    from.pipe(to);
  }
}

/** O3 */
function tell(inside: Socket, status: number, says: string): void {
  const body = `manyhands: ${says}\n`;
  inside.end(
    `HTTP/1.1 ${status} ${says}\r\ncontent-type: text/plain\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
  inside.resume();
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string"
    ? error.code
    : error instanceof Error
      ? error.message
      : "unknown";
}
