// The vault proxy's door: its routes on plain HTTP.
//
//   GET  /healthz                 alive; whether there is a model key and a key to check grants with
//   POST /revoke {session}        a grant for `revoke` of that session: its grants are refused from then on
//   POST /model/v1/messages…      see model.ts
//   CONNECT egress:1, /egress/…   the way out of hands; see egress/egress.ts
//   …    /mcp                     see mcp.ts
//   …    /v1/vaults…              the vaults' API, for gateways; see api/door.ts
//   POST /seal …             repository tokens in, references out; see git/door.ts
//   POST /vaults/check            which of a session's vaults are not there, or archived; for gateways
//   GET  /openapi.json            the vaults' part of the API's document

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import type { Logger } from "pino";
import { z } from "zod";
import { answer, refuse } from "./answer.ts";
import { VaultDoor } from "./api/door.ts";
import { Validator } from "./api/validate.ts";
import { Vaults } from "./api/vaults.ts";
import type { Audit } from "./audit.ts";
import { Egress } from "./egress/egress.ts";
import type { Way } from "./egress/way.ts";
import { isFramedOddly } from "./framing.ts";
import { GitDoor } from "./git/door.ts";
import type { GitHosts } from "./git/hosts.ts";
import { Repositories } from "./git/repositories.ts";
import { GitRoute } from "./git/route.ts";
import { Seals } from "./git/seal.ts";
import { Grants } from "./grant.ts";
import { Guard } from "./guard.ts";
import { McpRoute } from "./mcp.ts";
import { ModelRoute } from "./model.ts";
import type { Models } from "./models/providers.ts";
import { SharedSpend } from "./models/shared-spend.ts";
import type { Spend } from "./models/spend.ts";
import { Connector } from "./oauth/connector.ts";
import { OAUTH_TIMEOUT_MS, Refresher } from "./oauth/refresh.ts";
import type { Reach } from "./reach.ts";
import { Revocations } from "./revocations.ts";
import { StoreTrouble, type VaultStore } from "./store.ts";

const REVOKE_BYTES_MAX = 4_096;
/** A whole request has this long to arrive; longer than any honest upload of 32 MB. */
const REQUEST_TIMEOUT_MS = 120_000;
/** Longer than the pools of our callers keep a connection, so that it is they who close it. */
const KEEP_ALIVE_MS = 65_000;
/** How long open exchanges have to end once we close. */
const DRAIN_MS = 4_000;

/** To one origin: each session that listens to a server holds one. */
const SERVER_CONNECTIONS_MAX = 1_024;

const Revocation = z.strictObject({ session: z.string() });

export interface ServeOptions {
  readonly host: string;
  readonly port: number;
  readonly grantKeyFile: string;
  readonly models: Models;
  readonly spend: Spend;
  readonly headersTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** How long an authorization server may take. */
  readonly oauthTimeoutMs?: number;
  readonly bodyBytesMax?: number;
  readonly vaults: VaultStore;
  readonly audit: Audit;
  readonly reach: Reach;
  /** By which hands go out. */
  readonly egressWay: Way;
  /** Where repositories may be. */
  readonly gitHosts: GitHosts;
  /** Our OAuth client as it is published; null: it is not. */
  readonly clientDocument?: { readonly url: string; readonly redirectUri: string } | null;
  /** How often revocations of other proxies are looked for. */
  readonly lookMs?: number;
  readonly log: Logger;
}

export interface Serving {
  readonly url: string;
  /** Takes no more, lets what is open end for a few seconds, then cuts it. */
  close(): Promise<void>;
}

/** Listens; rejects with the system's error (EADDRINUSE …) if it can't. */
export async function serve(options: ServeOptions): Promise<Serving> {
  const { log, models } = options;
  const grants = new Grants(options.grantKeyFile, (reason) => log.warn({ reason }, "grant_key.unusable"));
  const isOver = (session: string): boolean => grants.isRevoked(session);
  const isLimitShared = options.vaults.driver === "server" && models.limit !== null;
  const shared = isLimitShared ? new SharedSpend({ own: options.spend, store: options.vaults, isOver, log }) : null;
  const model = new ModelRoute({
    models,
    spend: shared ?? options.spend,
    headersTimeoutMs: options.headersTimeoutMs,
    idleTimeoutMs: options.idleTimeoutMs,
    ...(options.bodyBytesMax === undefined ? {} : { bodyBytesMax: options.bodyBytesMax }),
    grants,
    audit: options.audit,
    log,
  });
  const { audit, reach } = options;
  const vaults = new Vaults(options.vaults);
  const guard = new Guard(reach, { connections: SERVER_CONNECTIONS_MAX });
  const isShared = options.vaults.driver === "server";
  const refresher = new Refresher({ vaults, guard, audit, log, isShared, tokenMs: options.oauthTimeoutMs ?? OAUTH_TIMEOUT_MS });
  const mcp = new McpRoute({ vaults, grants, guard, refresher, audit, log });
  const connect = { connector: new Connector({ guard, store: options.vaults, document: options.clientDocument ?? null }), audit };
  const validator = new Validator({ vaults, guard, refresher, audit });
  const door = new VaultDoor({ vaults, grants, rule: (url) => reach.refusesToBind(url), connect, validator, log });
  const repositories = new Repositories(options.vaults);
  const git = new GitRoute({ repositories, hosts: options.gitHosts, audit, log });
  const gitDoor = new GitDoor({ grants, hosts: options.gitHosts, seals: new Seals(options.vaults), repositories, log });
  const egress = new Egress({ grants, way: options.egressWay, vaults: options.vaults, audit, git, log });
  const cut = (session: string): void => {
    model.cut(session);
    mcp.cut(session);
    egress.revoked(session);
  };
  const { lookMs } = options;
  const revocations = new Revocations({ store: options.vaults, grants, cut, log, ...(lookMs === undefined ? {} : { lookMs }) });

  const route = async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    if (isFramedOddly(req)) return void refuse(res, "odd_framing");
    if (req.url?.startsWith("/model/")) return model.handle(req, res);
    if (req.url?.split("?")[0] === "/mcp") return mcp.handle(req, res);
    if (req.url?.startsWith("/egress/")) return egress.handle(req, res);
    if (door.takes(req.url ?? "")) return door.handle(req, res);
    if (gitDoor.takes(req.url ?? "")) return gitDoor.handle(req, res);
    if (req.url === "/healthz" && req.method === "GET") {
      return answer(res, 200, {
        ok: true,
        model_key: models.all.some(({ keys }) => keys.current() !== null),
        grant_key: grants.isReady(),
        vaults: options.vaults.driver,
      });
    }
    if (req.url === "/revoke" && req.method === "POST") return revoke(req, res, { grants, revocations, repositories, shared, log });
    refuse(res, "no_route");
  };

  const server = createServer({ keepAliveTimeout: KEEP_ALIVE_MS, requestTimeout: REQUEST_TIMEOUT_MS }, (req, res) => {
    // A rejection here is a bug; as an unhandled one it ends the process with its stack, as bugs do.
    void route(req, res);
  });
  server.on("connect", (req: IncomingMessage, socket: Duplex, head: Buffer) => void egress.take(req, socket, head));
  await revocations.start();
  const address = await listen(server, options.port, options.host).catch(async (error: unknown) => {
    await revocations.close();
    throw error;
  });
  return {
    url: `http://${address.family === "IPv6" ? `[${address.address}]` : address.address}:${address.port}`,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeIdleConnections();
      egress.close();
      const late = setTimeout(() => {
        server.closeAllConnections();
        egress.cut();
      }, DRAIN_MS);
      await closed;
      clearTimeout(late);
      await revocations.close();
      await refresher.close();
      await model.close();
      await guard.close();
      await git.close();
    },
  };
}

async function revoke(
  req: IncomingMessage,
  res: ServerResponse,
  {
    grants,
    revocations,
    repositories,
    shared,
    log,
  }: {
    readonly grants: Grants;
    readonly revocations: Revocations;
    readonly repositories: Repositories;
    readonly shared: SharedSpend | null;
    readonly log: Logger;
  },
): Promise<void> {
  const checked = await grants.check(req.headers.authorization, "revoke");
  if (checked.type === "refused") {
    log.warn({ reason: checked.reason }, "grant.refused");
    refuse(res, checked.reason === "unready" ? "grant_unready" : checked.reason === "other_use" ? "other_use" : "no_grant");
    return;
  }
  const { sessionId, workspace } = checked.grant;
  const asked = Revocation.safeParse(await readSmall(req));
  if (!asked.success || asked.data.session !== sessionId) {
    refuse(res, "not_a_session");
    return;
  }
  const came = await revocations.add(sessionId);
  if (came === "full") {
    refuse(res, "busy");
    return;
  }
  try {
    if (workspace !== null) await repositories.remove(workspace, sessionId);
    await shared?.forget(sessionId);
  } catch (error) {
    if (!(error instanceof StoreTrouble)) throw error;
    log.error({ sessionId, reason: error.reason, detail: error.detail }, "vault_store.failed");
    refuse(res, "no_vault_store");
    return;
  }
  log.info({ sessionId, isKept: came === "kept" }, "grant.revoked");
  if (came === "unstored") {
    refuse(res, "not_kept");
    return;
  }
  answer(res, 200, { revoked: sessionId });
}

/** A small JSON body; undefined if it is none, too long or cut off. */
async function readSmall(req: IncomingMessage): Promise<unknown> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const piece of req) {
      bytes += piece.length;
      if (bytes > REVOKE_BYTES_MAX) return undefined;
      pieces.push(piece);
    }
    return JSON.parse(Buffer.concat(pieces).toString("utf8"));
  } catch {
    return undefined; // Answered with what the body must be, which is all that the caller can use.
  }
}

function listen(server: Server, port: number, host: string): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      const address = server.address();
      if (address === null || typeof address === "string") reject(new Error("The server has no address."));
      else resolve(address);
    });
  });
}
