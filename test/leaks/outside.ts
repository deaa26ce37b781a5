// What is outside: a model, MCP servers, an authorization server and a host for programs of a hand. Each of them says back what it was sent, in every way
// in which a credential is promised to be hidden, and notes which canaries came to it: a search proves nothing about a secret that was never used.

import { request as ask, createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo, Server } from "node:net";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { type GitServer, startGitServer } from "../support/git-server.ts";
import { RawServer, says, tool } from "../support/mcp/raw.ts";
import { type ScriptedModel, startModel } from "../support/model/server.ts";
import { outsideAuthority } from "../vault-proxy/egress-kit.ts";
import type { Canaries } from "./canaries.ts";

const BODY_BYTES_MAX = 1024 * 1024;
const PACKERS = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync };

/** What must have come where, or the search would look for what was never used. */
export const ARRIVALS = [
  "bearer at docs",
  "early bearer at docs",
  "access token at mail",
  "renewed access token at mail",
  "refresh token at authorization server",
  "renewed refresh token at authorization server",
  "client secret at authorization server",
  "environment secret at host at /plain",
  "environment secret at host at /plain-body",
  "password at host at /plain",
  "wrong bearer at strict",
  "keeper bearer at keeper",
  "model key at model",
  "git token at git",
] as const;

/** Every form of a credential that the vault proxy promises to hide. */
function formsOf(secret: string): string {
  const hex = Buffer.from(secret).toString("hex");
  const base64 = (before: string) => Buffer.from(before + secret).toString("base64");
  return [
    secret,
    `Bearer ${secret}`,
    ...["", "x", "xy", "user:"].map(base64),
    ...["", "x", "xy"].map((before) => Buffer.from(before + secret).toString("base64url")),
    hex,
    hex.toUpperCase(),
    encodeURIComponent(secret),
    encodeURIComponent(secret).replace(/%../g, (pair) => pair.toLowerCase()),
    [...secret].map((letter) => `%${letter.charCodeAt(0).toString(16)}`).join(""),
  ].join("\n");
}

/** A JSON text in which the secret is escaped, as encoders may do it; twice: the text stands in another JSON text. */
function escapedIn(json: string, secret: string, form: string): string {
  const before = form === "escaped-twice" ? "\\\\" : "\\";
  const all = [...secret].map((letter) => `${before}u00${letter.charCodeAt(0).toString(16)}`).join("");
  const slashes = secret.replaceAll("/", `${before}/`);
  // Every other one in either way.
  return json.split(secret).reduce((text, piece, at) => `${text}${at % 2 === 0 ? slashes : all}${piece}`);
}

const bearerOf = (req: IncomingMessage): string => String(req.headers.authorization ?? "").replace(/^Bearer /, "");

export class Outside {
  readonly model: ScriptedModel;
  /** Of `acme/private` and `acme/echo`; the second one says everything back. */
  readonly git: GitServer;
  /** "canary at place" of all that came. */
  readonly arrived = new Set<string>();
  readonly #canaries: Canaries;
  readonly #servers: Server[] = [];
  readonly #raw: RawServer[] = [];
  readonly #struck = new Set<string>();
  readonly #stalled = new Set<ServerResponse>();
  readonly authority = outsideAuthority("localhost");
  modelUrl = "";
  hostUrl = "";
  secureUrl = "";
  tokenEndpoint = "";
  /** Names of the canaries that the next renewal gives; null: it is refused. */
  renewal: { readonly access: string; readonly refresh: string } | null = null;

  private constructor(canaries: Canaries, model: ScriptedModel, git: GitServer) {
    this.#canaries = canaries;
    this.model = model;
    this.git = git;
  }

  static async open(canaries: Canaries): Promise<Outside> {
    const git = await startGitServer();
    const outside = new Outside(canaries, await startModel(), git);
    for (const path of ["acme/private", "acme/echo"]) await git.add(path, { "README.md": "words\n" }, canaries.of("git token"));
    git.before = (req, res) => outside.#git(req, res);
    outside.modelUrl = await outside.#listen((req, res) => void outside.#model(req, res));
    outside.tokenEndpoint = `${await outside.#listen((req, res) => void outside.#tokens(req, res))}/token`;
    outside.hostUrl = await outside.#listen((req, res) => void outside.#host(req, res));
    const secure = createSecureServer({ ...outside.authority.of.localhost }, (req, res) => void outside.#host(req, res));
    outside.secureUrl = (await outside.#listening(secure)).replace("http://127.0.0.1", "https://localhost");
    return outside;
  }

  /** How many calls hang in the middle of their answers. */
  get stalled(): number {
    return this.#stalled.size;
  }

  /** An MCP server that lets in whoever brings one of these canaries. */
  async server(name: string, wanted: ReadonlySet<string>): Promise<RawServer> {
    const server: RawServer = await RawServer.start({
      hasSessions: true,
      script: ({ rpc, request, response, result, error, stream }) => {
        const token = bearerOf(request);
        this.#note(name, JSON.stringify(request.headers));
        server.options.tools = [tool("echo", { description: `You are ${formsOf(token)}` }), tool("slow")];
        const echo = JSON.stringify({ headers: request.headers, rpc, forms: formsOf(token) });
        if (![...wanted].some((each) => this.#canaries.of(each) === token)) {
          response.writeHead(401, { "www-authenticate": `Bearer error="invalid_token", error_description="${token}"`, "x-echo": token });
          response.end(echo);
          return true;
        }
        response.setHeader("x-echo", formsOf(token).replaceAll("\n", " "));
        if (rpc.method !== "tools/call") return false;
        const form = String((rpc.params?.arguments as { text?: unknown } | undefined)?.text ?? "");
        if (rpc.params?.name === "slow") {
          stream()({ method: "notifications/message", params: { level: "info", data: echo } });
          this.#stalled.add(response.once("close", () => this.#stalled.delete(response)));
          return true;
        }
        const answer = JSON.stringify({ jsonrpc: "2.0", id: rpc.id, result: { ...says(echo), structuredContent: { echo } } });
        if (form === "gzip" || form === "deflate" || form === "br") {
          response.writeHead(200, { "content-type": "application/json", "content-encoding": form }).end(PACKERS[form](answer));
        } else if (form === "pieces") {
          response.writeHead(200, { "content-type": "text/event-stream" });
          void inPieces(response, `event: message\ndata: ${answer}\n\n`);
        } else if (form.startsWith("escaped")) response.writeHead(200, { "content-type": "application/json" }).end(escapedIn(answer, token, form));
        else if (form === "error") error(-32_000, echo);
        else if (form === "failed") result(says(echo, true));
        else if (form === "500") response.writeHead(500, { "content-type": "text/plain", "mcp-echo": token }).end(echo);
        else if (form === "notices") {
          const tell = stream();
          tell({ method: "notifications/message", params: { level: "error", data: echo } });
          tell({ method: "notifications/message", params: { level: "error", logger: token, data: { token } } });
          result(says(echo));
        } else result({ ...says(echo), structuredContent: { echo } });
        return true;
      },
    });
    this.#raw.push(server);
    return server;
  }

  async close(): Promise<void> {
    for (const server of this.#raw) await server.close();
    for (const server of this.#servers) {
      const closed = new Promise((resolve) => server.close(resolve));
      if ("closeAllConnections" in server && typeof server.closeAllConnections === "function") server.closeAllConnections();
      await closed;
    }
    await this.model.close();
    await this.git.close();
  }

  /** The scripted model, but for requests whose last words hold `model-fault KIND`: once each they are answered with the key. */
  async #model(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const body = await textOf(req);
    const key = String(req.headers["x-api-key"] ?? "");
    this.#note("model", key);
    const fault = /model-fault ([\w-]+) (\w+)/.exec(body.slice(Math.max(0, body.lastIndexOf("model-fault"))));
    if (fault !== null && !this.#struck.has(fault[0])) {
      this.#struck.add(fault[0]);
      this.#fail(res, fault[1] ?? "", key, JSON.stringify(req.headers));
      return;
    }
    const { host: _host, ...headers } = req.headers;
    const onward = ask(`${this.model.url}${req.url}`, { method: req.method, headers }, (answer) => {
      res.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(res);
    });
    onward.on("error", () => res.destroy());
    res.on("close", () => onward.destroy());
    onward.end(body);
  }

  #fail(res: ServerResponse, kind: string, key: string, headers: string): void {
    const forms = formsOf(key);
    const message = `The key ${forms} of ${headers} is not known here.`;
    const body = JSON.stringify({ type: "error", error: { type: "api_error", message } });
    const json = { "content-type": "application/json", "request-id": key, "anthropic-echo": forms.replaceAll("\n", " ") };
    if (kind === "packed") res.writeHead(500, { ...json, "content-encoding": "gzip" }).end(gzipSync(body));
    else if (kind.startsWith("escaped")) res.writeHead(400, json).end(escapedIn(body, key, kind));
    else if (kind === "page") res.writeHead(502, { "content-type": "text/html" }).end(`<h1>${message}</h1>`);
    else if (kind === "stream") {
      res.writeHead(200, { ...json, "content-type": "text/event-stream" });
      void inPieces(res, `event: error\ndata: ${body}\n\n`);
    } else if (kind === "cut") {
      res.writeHead(200, { ...json, "content-type": "text/event-stream" });
      res.write(`event: message_start\ndata: {"key":${JSON.stringify(forms)}`, () => res.destroy());
    } else res.writeHead(Number(kind), json).end(body);
  }

  async #tokens(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const body = await textOf(req);
    const authorization = Buffer.from(String(req.headers.authorization ?? "").replace("Basic ", ""), "base64").toString();
    const decoded = [...new URLSearchParams(body).values(), decodeURIComponent(authorization)].join(" ");
    this.#note("authorization server", decoded);
    const json = { "content-type": "application/json" };
    if (this.renewal === null) {
      res.writeHead(400, json).end(JSON.stringify({ error: "invalid_grant", error_description: `no ${decoded} ${body}`, headers: req.headers }));
      return;
    }
    const { access, refresh } = this.renewal;
    const tokens = { access_token: this.#canaries.of(access), refresh_token: this.#canaries.of(refresh), token_type: "Bearer", expires_in: 3_600 };
    res.writeHead(200, json).end(JSON.stringify(tokens));
  }

  async #host(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const body = await textOf(req);
    const { authorization = "" } = req.headers;
    const basic = authorization.startsWith("Basic ") ? Buffer.from(authorization.slice(6), "base64").toString() : "";
    const secret =
      basic === "" ? authorization.replace(/^Bearer /, "") || (/"token":"([^"]*)"/.exec(body)?.[1] ?? "none") : basic.slice(basic.indexOf(":") + 1);
    this.#note(`host at ${req.url?.split("?")[0]}`, `${authorization} ${basic} ${body}`);
    const said = JSON.stringify({ headers: req.headers, body, forms: formsOf(secret) });
    const headers = { "content-type": "application/json", "x-echo": formsOf(secret).replaceAll("\n", " "), "set-cookie": `token=${secret}` };
    const form = req.url?.replace(/^\/|-body$/g, "") ?? "";
    if (form === "gzip") res.writeHead(200, { ...headers, "content-encoding": "gzip" }).end(gzipSync(said));
    else if (form.startsWith("escaped")) res.writeHead(200, headers).end(escapedIn(said, secret, form));
    else if (form === "failed") res.writeHead(500, headers).end(said);
    else if (form === "away") res.writeHead(302, { ...headers, location: `${this.hostUrl}/taken?token=${encodeURIComponent(secret)}` }).end(said);
    else if (form === "pieces") {
      res.writeHead(200, headers);
      await inPieces(res, said);
    } else res.writeHead(200, headers).end(said);
  }

  #git(req: IncomingMessage, res: ServerResponse): boolean {
    const basic = Buffer.from(String(req.headers.authorization ?? "").replace("Basic ", ""), "base64").toString();
    this.#note("git", basic);
    if (!req.url?.startsWith("/acme/echo/")) return false;
    const said = `${JSON.stringify(req.headers)} ${formsOf(basic.slice(basic.indexOf(":") + 1))}`;
    res.writeHead(403, { "content-type": "text/plain", "x-echo": basic, "www-authenticate": `Basic realm="${basic}"` }).end(said);
    return true;
  }

  #note(place: string, text: string): void {
    for (const [name, secret] of this.#canaries.all) if (text.includes(secret)) this.arrived.add(`${name} at ${place}`);
  }

  #listen(handle: RequestListener): Promise<string> {
    return this.#listening(createServer(handle));
  }

  async #listening(server: Server): Promise<string> {
    this.#servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }
}

/** A few letters at a time, so that a secret comes in many chunks. */
async function inPieces(res: ServerResponse, text: string): Promise<void> {
  for (let at = 0; at < text.length && !res.destroyed; at += 7)
    await new Promise<void>((resolve) => res.write(text.slice(at, at + 7), () => resolve()));
  res.end();
}

async function textOf(req: IncomingMessage): Promise<string> {
  let text = "";
  for await (const piece of req) if (text.length < BODY_BYTES_MAX) text += String(piece);
  return text;
}
