// What tests of the MCP route need: vaults and credentials made through the API's door, grants, and requests through the route.

import { request } from "undici";
import { mintEvent } from "../../session-store/ids.ts";
import type { Signer } from "./signer.ts";

export interface Got {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  /** Which "no" of the proxy's own it is. */
  readonly refusal: string | undefined;
}

export interface Through {
  readonly target: string;
  readonly server?: string;
  readonly vaults?: readonly string[];
  readonly session?: string;
  readonly workspace?: string;
  readonly method?: "POST" | "GET" | "DELETE" | "TRACE" | "OPTIONS";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly grant?: string;
}

export class Caller {
  readonly #url: string;
  readonly #signer: Signer;

  constructor(url: string, signer: Signer) {
    this.#url = url;
    this.#signer = signer;
  }

  grant(vaults: readonly string[], session = "sesn_1", workspace = "default"): Promise<string> {
    return this.#signer.sign({ sub: session, vaults, workspace, use: ["mcp"] });
  }

  /** A request through the MCP route. */
  async send(through: Through): Promise<Got> {
    const {
      target,
      server,
      vaults = [],
      session,
      workspace,
      method = "POST",
      headers = {},
      body = '{"jsonrpc":"2.0","id":1,"method":"ping"}',
    } = through;
    const answer = await request(`${this.#url}/mcp`, {
      method,
      headers: {
        authorization: `Bearer ${through.grant ?? (await this.grant(vaults, session, workspace))}`,
        "x-manyhands-target": target,
        ...(server === undefined ? {} : { "x-manyhands-server": server }),
        ...(method === "POST" ? { "content-type": "application/json" } : {}),
        ...headers,
      },
      ...(method === "POST" ? { body } : {}),
    });
    const refusal = answer.headers["x-manyhands-refusal"];
    return {
      status: answer.statusCode,
      headers: answer.headers,
      text: await answer.body.text(),
      refusal: typeof refusal === "string" ? refusal : undefined,
    };
  }

  /** A request to the vaults' API, as the gateway makes it. */
  async api<T = Record<string, unknown>>(method: "POST" | "GET" | "DELETE", path: string, body?: unknown, workspace = "default"): Promise<T> {
    const now = Math.floor(Date.now() / 1000);
    const jti = mintEvent().replace(/^\w+?_/, "req_");
    const token = await this.#signer.sign({ sub: "gateway", workspace, principal: "test", jti, use: ["vaults"], exp: now + 50 });
    const answer = await request(`${this.#url}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.body.text();
    if (answer.statusCode !== 200) throw new Error(`${method} ${path}: ${answer.statusCode} ${text}`);
    return JSON.parse(text) as T;
  }

  async vault(workspace = "default"): Promise<string> {
    return String((await this.api("POST", "/v1/vaults", { display_name: "test" }, workspace)).id);
  }

  async credential(vault: string, auth: Record<string, unknown>, workspace = "default"): Promise<string> {
    return String((await this.api("POST", `/v1/vaults/${vault}/credentials`, { auth }, workspace)).id);
  }

  /** A vault with one bearer token for a server. */
  async bearer(url: string, token: string): Promise<string> {
    const vault = await this.vault();
    await this.credential(vault, { type: "static_bearer", mcp_server_url: url, token });
    return vault;
  }
}
