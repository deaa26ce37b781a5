// A test double of a Vault server: it follows the documented HTTP API, errors included, as far as a client of the key-value store (version 2), AppRole and
// tokens can see. It is no Vault: it seals nothing, keeps everything in memory, and listens on the loopback address only.

import { randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { z } from "zod";

export const ROLE_ID = "double-role-id";
export const SECRET_ID = "double-secret-id-canary";
export const ROOT_TOKEN = "double-root-token-canary";

interface Version {
  readonly data: unknown;
  readonly createdAt: string;
}
interface Secret {
  readonly versions: Map<number, Version>;
  current: number;
  maxVersions: number;
  casRequired: boolean;
}
interface Token {
  endsAt: number;
  lifeS: number;
  readonly isRenewable: boolean;
}

/** How the double behaves; changed by POST /double. */
const Behaviour = z.strictObject({
  sealed: z.boolean().default(false),
  /** Everything but logins is answered as a policy that allows nothing answers. */
  denied: z.boolean().default(false),
  /** The next write is done, and its connection cut before the answer. */
  cutNextWrite: z.boolean().default(false),
  /** Forgets every token that was given out. */
  forgetTokens: z.boolean().default(false),
  /** Answers a renewal with 200 and something that is none. */
  oddRenewals: z.boolean().default(false),
  tokenLifeS: z.number().default(3_600),
});
type Behaviour = z.infer<typeof Behaviour>;

const Put = z.object({ data: z.unknown(), options: z.object({ cas: z.number().optional() }).optional() });
const Meta = z.object({ max_versions: z.number().optional(), cas_required: z.boolean().optional() });
const Login = z.object({ role_id: z.string().optional(), secret_id: z.string().optional() });
const DENIED = "1 error occurred:\n\t* permission denied\n\n";
const MOUNT = "secret";
const VERSIONS_MAX = 10;

class Answer extends Error {
  readonly status: number;
  readonly body: unknown;
  constructor(status: number, body: unknown) {
    super(String(status));
    this.status = status;
    this.body = body;
  }
}
const no = (status: number, ...errors: string[]) => new Answer(status, { errors });
const yes = (data: unknown, auth: unknown = null) =>
  new Answer(200, {
    request_id: randomBytes(8).toString("hex"),
    lease_id: "",
    renewable: false,
    lease_duration: 0,
    data,
    wrap_info: null,
    warnings: null,
    auth,
  });
const NOTHING = new Answer(204, null);

class VaultDouble {
  readonly #secrets = new Map<string, Secret>();
  readonly #tokens = new Map<string, Token>();
  #behaviour: Behaviour = Behaviour.parse({});
  /** How often which call came. */
  readonly calls = new Map<string, number>();

  answer(method: string, path: string, { token, namespace, body }: { token: string; namespace: string; body: unknown }): Answer {
    if (path === "double" && method === "GET") return new Answer(200, Object.fromEntries(this.calls));
    if (path === "double") {
      this.#behaviour = Behaviour.parse(body);
      if (this.#behaviour.forgetTokens) this.#tokens.clear();
      return new Answer(200, { what: "a test double of a Vault server" });
    }
    const name = `${method} ${path.replace(/\/manyhands.*$/, "")}`;
    this.calls.set(name, (this.calls.get(name) ?? 0) + 1);
    if (this.#behaviour.sealed) return no(503, "Vault is sealed");
    if (path === "auth/approle/login" && method === "POST") return this.#login(Login.parse(body));
    const held = this.#tokens.get(token);
    if (token !== ROOT_TOKEN && (!held || held.endsAt < Date.now())) return no(403, "permission denied");
    if (path === "auth/token/lookup-self")
      return yes({ id: token, ttl: held ? (held.endsAt - Date.now()) / 1000 : 0, renewable: held?.isRenewable ?? false });
    if (path === "auth/token/renew-self" && this.#behaviour.oddRenewals) return yes({ no: "auth" });
    if (path === "auth/token/renew-self") return held ? this.#renew(token, held) : no(400, "lease is not renewable");
    if (this.#behaviour.denied) return no(403, DENIED);
    const [, mount, part, rest] = /^([^/]+)\/(data|metadata)\/(.*)$/.exec(path) ?? [];
    if (mount !== MOUNT || rest === undefined) return no(404, `no handler for route "${path}". route entry not found.`);
    const at = `${namespace}:${rest}`;
    return part === "data" ? this.#data(method, at, body) : this.#metadata(method, at, body);
  }

  takeCut(method: string, path: string): boolean {
    if (!this.#behaviour.cutNextWrite || method !== "POST" || !path.startsWith(`${MOUNT}/data/`)) return false;
    this.#behaviour = { ...this.#behaviour, cutNextWrite: false };
    return true;
  }

  #login({ role_id, secret_id }: z.infer<typeof Login>): Answer {
    if (role_id === undefined) return no(400, "missing role_id");
    if (secret_id === undefined) return no(400, "missing secret_id");
    if (role_id !== ROLE_ID || secret_id !== SECRET_ID) return no(400, "invalid role or secret ID");
    const token = `double-token-canary-${randomBytes(12).toString("hex")}`;
    const lifeS = this.#behaviour.tokenLifeS;
    this.#tokens.set(token, { endsAt: Date.now() + lifeS * 1000, lifeS, isRenewable: true });
    return yes(null, { client_token: token, accessor: "a", policies: ["manyhands"], lease_duration: lifeS, renewable: true, token_type: "service" });
  }

  #renew(name: string, token: Token): Answer {
    token.endsAt = Date.now() + token.lifeS * 1000;
    return yes(null, { client_token: name, accessor: "a", policies: ["manyhands"], lease_duration: token.lifeS, renewable: true });
  }

  #data(method: string, at: string, body: unknown): Answer {
    const secret = this.#secrets.get(at);
    if (method === "GET") {
      const version = secret?.versions.get(secret.current);
      if (!secret || !version) return no(404);
      return yes({
        data: version.data,
        metadata: { version: secret.current, created_time: version.createdAt, deletion_time: "", destroyed: false, custom_metadata: null },
      });
    }
    if (method !== "POST") return no(405, "unsupported operation");
    const { data, options } = Put.parse(body);
    if (data === undefined) return no(400, "no data provided");
    const made: Secret = secret ?? { versions: new Map(), current: 0, maxVersions: 0, casRequired: false };
    if (options?.cas === undefined && made.casRequired) return no(400, "check-and-set parameter required for this call");
    if (options?.cas !== undefined && options.cas !== made.current) return no(400, "check-and-set parameter did not match the current version");
    made.current += 1;
    made.versions.set(made.current, { data, createdAt: new Date().toISOString() });
    for (const old of made.versions.keys()) if (old <= made.current - (made.maxVersions || VERSIONS_MAX)) made.versions.delete(old);
    this.#secrets.set(at, made);
    return yes({ version: made.current, created_time: new Date().toISOString(), deletion_time: "", destroyed: false, custom_metadata: null });
  }

  #metadata(method: string, at: string, body: unknown): Answer {
    if (method === "LIST") {
      const prefix = at.endsWith("/") ? at : `${at}/`;
      const keys = [...this.#secrets.keys()].filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length).replace(/\/.*$/, "/"));
      return keys.length === 0 ? no(404) : yes({ keys: [...new Set(keys)].sort() });
    }
    if (method === "DELETE") {
      this.#secrets.delete(at);
      return NOTHING;
    }
    if (method !== "POST") return no(405, "unsupported operation");
    const { max_versions, cas_required } = Meta.parse(body);
    const made: Secret = this.#secrets.get(at) ?? { versions: new Map(), current: 0, maxVersions: 0, casRequired: false };
    made.maxVersions = max_versions ?? made.maxVersions;
    made.casRequired = cas_required ?? made.casRequired;
    this.#secrets.set(at, made);
    return NOTHING;
  }
}

export async function startVaultDouble(port = 0): Promise<{ url: string; close(): Promise<void> }> {
  const double = new VaultDouble();
  const server = createServer((req, res) => void handle(double, req, res));
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function handle(double: VaultDouble, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const pieces: Buffer[] = [];
  for await (const piece of req) pieces.push(piece);
  const url = new URL(req.url ?? "/", "http://double");
  const path = url.pathname.replace(/^\/(v1\/)?/, "");
  const method = req.method === "GET" && url.searchParams.get("list") !== null ? "LIST" : (req.method ?? "");
  const text = Buffer.concat(pieces).toString("utf8");
  const headers = { token: String(req.headers["x-vault-token"] ?? ""), namespace: String(req.headers["x-vault-namespace"] ?? "") };
  const { status, body } = double.answer(method, path, { ...headers, body: text === "" ? undefined : JSON.parse(text) });
  if (double.takeCut(method, path)) {
    req.socket.destroy();
    return;
  }
  res.writeHead(status, { "content-type": "application/json" });
  res.end(body === null ? undefined : JSON.stringify(body));
}
