// A git server: the real `git http-backend` behind HTTP, with a private repository that wants its token as a password.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { createGunzip } from "node:zlib";

const run = promisify(execFile);

interface GitRequest {
  readonly method: string;
  readonly url: string;
  readonly authorization: string;
  readonly protocol: string;
}

export interface GitServer {
  readonly url: string;
  /** All that came, whatever was answered. */
  readonly came: GitRequest[];
  /** Answers a request in the server's place: true. What it waits for holds the request up. */
  before: (req: IncomingMessage, res: ServerResponse) => boolean | Promise<boolean>;
  /** A bare repository with a commit of these files on `main`; `token` null: anybody reads it. */
  add(path: string, files: Readonly<Record<string, string>>, token: string | null): Promise<void>;
  /** What a git command says in that repository. */
  git(path: string, ...args: readonly string[]): Promise<string>;
  /** One more commit on `main`, of one file. */
  commit(path: string, file: string, text: string): Promise<void>;
  /** From now on this token opens it. */
  setToken(path: string, token: string | null): void;
  close(): Promise<void>;
}

export async function startGitServer(): Promise<GitServer> {
  const root = await mkdtemp(join(tmpdir(), "git-server-"));
  const tokens = new Map<string, string | null>();
  const came: GitRequest[] = [];
  const env = { PATH: process.env.PATH ?? "", HOME: root, GIT_CONFIG_NOSYSTEM: "1" };
  const server = createServer(async (req, res) => {
    const { authorization = "", "git-protocol": protocol } = req.headers;
    came.push({ method: req.method ?? "", url: req.url ?? "", authorization, protocol: String(protocol ?? "") });
    if (await made.before(req, res)) return;
    const path = /^\/([^/]+\/[^/]+)\/(?:info\/refs|git-(?:upload|receive)-pack)(?:\?|$)/.exec(req.url ?? "")?.[1];
    if (path === undefined || !tokens.has(path)) return void res.writeHead(404, { "content-type": "text/plain" }).end("Repository not found.\n");
    const token = tokens.get(path);
    const isPushing = req.url?.includes("git-receive-pack") ?? false;
    const wanted = `Basic ${Buffer.from(`x-access-token:${token ?? ""}`).toString("base64")}`;
    if ((token !== null || isPushing) && authorization !== wanted)
      return void res.writeHead(401, { "www-authenticate": 'Basic realm="git"', "content-type": "text/plain" }).end("Invalid username or token.\n");
    serve(req, res, root, env);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const git = async (path: string, ...args: readonly string[]) =>
    (await run("git", ["-C", join(root, `${path}.git`), ...args], { env: { ...env, ...IDENTITY } })).stdout;
  const made: GitServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    came,
    before: () => false,
    async add(path, files, token) {
      const work = await mkdtemp(join(root, "work-"));
      const at = async (...args: readonly string[]) => run("git", ["-C", work, ...args], { env: { ...env, ...IDENTITY } });
      await at("init", "--quiet", "--initial-branch=main");
      for (const [name, text] of Object.entries(files)) {
        await mkdir(join(work, name, ".."), { recursive: true });
        await writeFile(join(work, name), text);
      }
      await at("add", "--all");
      await at("commit", "--quiet", "--message=first");
      await run("git", ["clone", "--quiet", "--bare", work, join(root, `${path}.git`)], { env });
      await git(path, "config", "http.receivepack", "true");
      tokens.set(path, token);
    },
    git,
    async commit(path, file, text) {
      const work = await mkdtemp(join(root, "work-"));
      const at = async (...args: readonly string[]) => run("git", ["-C", work, ...args], { env: { ...env, ...IDENTITY } });
      await run("git", ["clone", "--quiet", join(root, `${path}.git`), work], { env });
      await writeFile(join(work, file), text);
      await at("add", "--all");
      await at("commit", "--quiet", `--message=${file}`);
      await at("push", "--quiet", "origin", "HEAD:main");
    },
    setToken: (path, token) => void tokens.set(path, token),
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
      await rm(root, { recursive: true, force: true });
    },
  };
  return made;
}

const IDENTITY = {
  GIT_AUTHOR_NAME: "Test",
  GIT_AUTHOR_EMAIL: "test@example.com",
  GIT_COMMITTER_NAME: "Test",
  GIT_COMMITTER_EMAIL: "test@example.com",
};

/** The common gateway interface, as far as http-backend needs it. */
function serve(req: IncomingMessage, res: ServerResponse, root: string, env: Readonly<Record<string, string>>): void {
  const [path = "", query = ""] = (req.url ?? "").split("?");
  const child = spawn("git", ["http-backend"], {
    env: {
      ...env,
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: "1",
      PATH_INFO: path,
      QUERY_STRING: query,
      REQUEST_METHOD: req.method ?? "GET",
      REMOTE_USER: "x-access-token",
      CONTENT_TYPE: req.headers["content-type"] ?? "",
      GIT_PROTOCOL: String(req.headers["git-protocol"] ?? ""),
      HTTP_CONTENT_ENCODING: "",
    },
  });
  child.on("error", () => res.destroy());
  child.stdin.on("error", () => {});
  const body = req.headers["content-encoding"] === "gzip" ? req.pipe(createGunzip()) : req;
  body.on("error", () => child.kill());
  body.pipe(child.stdin);
  let head: string | null = "";
  child.stdout.on("data", (piece: Buffer) => {
    if (head === null) return void res.write(piece);
    head += piece.toString("latin1");
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) return;
    const headers = head
      .slice(0, end)
      .split("\r\n")
      .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()] as const);
    const status = Number(headers.find(([name]) => name.toLowerCase() === "status")?.[1]?.slice(0, 3) ?? 200);
    res.writeHead(status, headers.filter(([name]) => name.toLowerCase() !== "status").flat());
    res.write(Buffer.from(head.slice(end + 4), "latin1"));
    head = null;
  });
  child.stdout.on("end", () => res.end());
  res.on("close", () => child.kill());
}
