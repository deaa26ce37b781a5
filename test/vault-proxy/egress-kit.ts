// The egress proxy inside the test's process, what speaks to it as a hand's programs do, and hosts on loopback that it may reach.

import { createHash, generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { createServer as createPlain, type IncomingMessage, type RequestListener, request } from "node:http";
import { createServer as createSecure } from "node:https";
import { type AddressInfo, connect, createServer as createTcp, type Server, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from "node:tls";
import { mint } from "../../session-store/ids.ts";
import { authorityCertificate, hostCertificate } from "../../vault-proxy/egress/certificate.ts";
import type { VaultStore } from "../../vault-proxy/store.ts";
import type { Signer, TestProxy } from "./proxy.ts";

const WORKSPACE = "default";

/** Somebody else's authority, and a host's certificate of it. */
export function outsideAuthority(...hosts: readonly string[]) {
  const key = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
  const issuer = { name: "outside authority", key };
  const own = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
  const certificate = authorityCertificate(issuer, 2);
  const of = (host: string) => ({ key: own.export({ type: "pkcs8", format: "pem" }), cert: hostCertificate(issuer, host, own, 2) + certificate });
  return { certificate, of: Object.fromEntries(hosts.map((host) => [host, of(host)])) };
}

export interface Host {
  readonly port: number;
  /** Connections that came. */
  readonly seen: Socket[];
  close(): Promise<void>;
}

export async function startHost(handle: RequestListener, tls?: { readonly key: string | Buffer; readonly cert: string }): Promise<Host> {
  return await listening(tls === undefined ? createPlain(handle) : createSecure(tls, handle));
}

export const startTcp = (handle: (socket: Socket) => void): Promise<Host> => listening(createTcp({ allowHalfOpen: true }, handle));

async function listening(server: Server): Promise<Host> {
  const seen: Socket[] = [];
  server.on("connection", (socket: Socket) => {
    seen.push(socket);
    socket.on("error", () => {});
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    seen,
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of seen) socket.destroy();
      await closed;
    },
  };
}

export interface SecretGiven {
  readonly name: string;
  readonly value: string;
  readonly hosts?: readonly string[];
  readonly header?: boolean;
  readonly body?: boolean;
}

/** A vault with these credentials, as it rests; gives its id. */
export async function putVault(store: VaultStore, secrets: readonly SecretGiven[]): Promise<string> {
  const id = mint("vlt");
  const own = { metadata: {}, createdAt: 1, updatedAt: 1, archivedAt: null, origin: { key: null, digest: "x" } };
  const credentials = secrets.map(({ name, value, hosts, header = true, body = true }) => ({
    id: mint("vcrd"),
    display_name: null,
    ...own,
    auth: {
      type: "environment_variable",
      secret_name: name,
      secret_value: value,
      networking: hosts === undefined ? { type: "unrestricted" } : { type: "limited", allowed_hosts: hosts },
      injection_location: { header, body },
    },
  }));
  await store.put({ workspace: WORKSPACE, kind: "vault", id }, { display_name: "v", ...own, credentials }, 0);
  return id;
}

export interface Wanting {
  readonly network?: object;
  readonly vaults?: readonly string[];
  readonly session?: string;
  readonly claims?: Record<string, unknown>;
}

/** A session, as its hand host has it: a grant, and the policy that it names. */
export class Way {
  readonly #proxy: Pick<TestProxy, "url">;
  readonly #signer: Signer;
  readonly #wanting: Wanting;

  constructor(proxy: Pick<TestProxy, "url">, signer: Signer, wanting: Wanting = {}) {
    this.#proxy = proxy;
    this.#signer = signer;
    this.#wanting = wanting;
  }

  get network(): string {
    return JSON.stringify(this.#wanting.network ?? { type: "unrestricted" });
  }

  grant(): Promise<string> {
    const { session = "sesn_1", vaults = [], claims } = this.#wanting;
    const network = createHash("sha256").update(this.network).digest("base64url");
    return this.#signer.sign({ sub: session, vaults, workspace: WORKSPACE, use: ["egress"], network, ...claims });
  }

  async environment(): Promise<{ variables: { name: string; placeholder: string }[]; certificate: string | null }> {
    const answer = await fetch(`${this.#proxy.url}/egress/environment`, { headers: { authorization: `Bearer ${await this.grant()}` } });
    if (!answer.ok) throw new Error(`answered ${answer.status}`);
    return (await answer.json()) as Awaited<ReturnType<Way["environment"]>>;
  }

  /** A line of the session, or the status that it was refused with. */
  async line(policy = this.network): Promise<Socket | number> {
    const { hostname, port } = new URL(this.#proxy.url);
    const asked = request({
      method: "CONNECT",
      path: "egress:1",
      headers: { authorization: `Bearer ${await this.grant()}` },
      createConnection: () => connect({ host: hostname, port: Number(port), allowHalfOpen: true }),
    });
    asked.end();
    const [answer, socket] = (await once(asked, "connect")) as [IncomingMessage, Socket];
    socket.on("error", () => {});
    if (answer.statusCode !== 200) {
      socket.destroy();
      return answer.statusCode ?? 0;
    }
    const text = Buffer.from(policy);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(text.length);
    socket.write(Buffer.concat([length, text]));
    return socket;
  }

  async open(): Promise<Socket> {
    const line = await this.line();
    if (typeof line === "number") throw new Error(`refused with ${line}`);
    return line;
  }

  /** What is answered to these bytes, up to the connection's end. */
  async raw(text: string): Promise<string> {
    const line = await this.open();
    line.write(text);
    return await all(line);
  }

  /** A CONNECT; its tunnel, or the whole of another answer. */
  async connect(to: string): Promise<Socket | string> {
    const line = await this.open();
    line.write(`CONNECT ${to} HTTP/1.1\r\nHost: ${to}\r\n\r\n`);
    const head = await headOf(line);
    return head.startsWith("HTTP/1.1 200") ? line : head + (await all(line));
  }

  /** TLS through a CONNECT. */
  async tls(to: string, options: ConnectionOptions = {}): Promise<TLSSocket> {
    const socket = await this.connect(to);
    if (typeof socket === "string") throw new Error(socket);
    const secure = connectTls({ socket, servername: to.replace(/:\d+$/, ""), ...options });
    secure.on("error", () => {});
    await Promise.race([once(secure, "secureConnect"), once(secure, "close").then(() => Promise.reject(new Error("no handshake")))]);
    return secure;
  }
}

/** One request over a connection that is there; the whole answer. */
export async function ask(
  socket: Socket,
  given: { method?: string; path?: string; headers?: Record<string, string>; body?: string | readonly string[] },
): Promise<{ status: number; headers: IncomingMessage["headers"]; body: string; bytes: Buffer }> {
  const { method = "GET", path = "/", headers = {}, body } = given;
  const asked = request({ method, path, headers, createConnection: () => socket });
  for (const piece of typeof body === "string" ? [body] : (body ?? [])) asked.write(piece);
  asked.end();
  const [answer] = (await once(asked, "response")) as [IncomingMessage];
  const pieces: Buffer[] = [];
  for await (const piece of answer) pieces.push(piece);
  const bytes = Buffer.concat(pieces);
  return { status: answer.statusCode ?? 0, headers: answer.headers, body: bytes.toString("utf8"), bytes };
}

export async function all(socket: Socket): Promise<string> {
  let text = "";
  for await (const piece of socket) text += String(piece);
  return text;
}

async function headOf(socket: Socket): Promise<string> {
  let text = "";
  for (;;) {
    const piece: Buffer | null = socket.read(1);
    if (piece === null) {
      if (socket.readableEnded || socket.destroyed) return text;
      await Promise.race([once(socket, "readable"), once(socket, "close")]);
      continue;
    }
    text += piece.toString("latin1");
    if (text.endsWith("\r\n\r\n")) return text;
  }
}
