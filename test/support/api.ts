// The HTTP door on a port of this process, over a real embedded store, and ways to speak to it.

import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import pino from "pino";
import { ensureKeys } from "../../gateway/keys.ts";
import { harden } from "../../gateway/listen.ts";
import type { McpSettings } from "../../gateway/mcp/door.ts";
import type { RelaySettings } from "../../gateway/relay/door.ts";
import { makeServer } from "../../gateway/server.ts";
import { VaultProxy } from "../../gateway/vault-proxy.ts";
import { openEmbeddedStore } from "../../session-store/drivers/embedded/driver.ts";
import { noFault } from "../../session-store/fault-point.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { fixedKey } from "../../vault-proxy/model-key.ts";
import { ownProvider, plainModels } from "../../vault-proxy/models/providers.ts";
import { serve } from "../../vault-proxy/serve.ts";
import { openVaultParts, type VaultParts } from "./vault-parts.ts";

export const API_KEY = "test-key-1";
const RELAY: Omit<RelaySettings, "vault"> = {
  internalHosts: ["127.0.0.1"],
  times: { connectMs: 2_000, idleMs: 5_000, totalMs: 10_000 },
  handsUrl: null,
  handKey: "",
};

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came back.
  readonly body: any;
}

export interface Api {
  readonly url: string;
  readonly store: SessionStore;
  readonly client: Anthropic;
  readonly logged: readonly string[];
  /** The vault proxy's own; null unless it was asked for. */
  readonly vaults: VaultParts | null;
  readonly vaultUrl: string | null;
  readonly vaultProxy: VaultProxy | null;
  /** One request; a string or buffer goes out as it is, anything else as JSON. */
  call(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  /** The next POST's answer is kept back: `stored` is called in its place, and the connection is expected to go. */
  holdAnswers(stored: () => void): void;
  /** Resolves when the held answer was given up with its connection. */
  answersHeld(): Promise<void>;
  /** Ends streams as a stopping gateway does. */
  stop(): void;
  close(): Promise<void>;
}

export async function startApi(
  options: {
    vaults?: boolean;
    /** Hosts on this machine that credentials may go to. */
    internalHosts?: readonly string[];
    /** Where repositories may be, beside GitHub. */
    gitOrigins?: readonly string[];
    mcp?: Partial<McpSettings>;
    relay?: Partial<RelaySettings>;
    keepAliveMs?: number;
    slowReaderMs?: number;
    leaseMs?: number;
    wrap?: (store: SessionStore) => SessionStore;
  } = {},
): Promise<Api> {
  const dir = await mkdtemp(join(tmpdir(), "manyhands-api-"));
  const opened = await openEmbeddedStore({ dir, leaseMs: options.leaseMs ?? 30_000 });
  const store = options.wrap?.(opened) ?? opened;
  const logged: string[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => void logged.push(line) });
  const vaults = options.vaults ? await startVaults(dir, log, options) : null;
  let url = "";
  const server = makeServer({
    vaultProxy: vaults?.client ?? null,
    store,
    apiKeys: [API_KEY, "test-key-2"],
    log,
    fault: noFault,
    ready: () => true,
    mcp: { publicUrl: null, ownUrl: () => url, isLoopback: true, issuer: null, isOpen: false, stateKey: Buffer.alloc(32, 1), ...options.mcp },
    relay: { ...RELAY, ...options.relay },
    ...(options.keepAliveMs !== undefined && { keepAliveMs: options.keepAliveMs }),
    ...(options.slowReaderMs !== undefined && { slowReaderMs: options.slowReaderMs }),
  });
  let onStored: (() => void) | null = null;
  let gone: Promise<void> = Promise.resolve();
  const http = createServer((request, response) => {
    const stored = onStored;
    if (request.method === "POST" && stored) {
      onStored = null;
      const { end } = response;
      gone = new Promise((resolve) => response.once("close", () => resolve()));
      // What the door answers reaches a connection that is no more.
      response.end = ((...args: Parameters<typeof end>) => {
        stored();
        void gone.then(() => end.apply(response, args));
        return response;
      }) as typeof end;
    }
    server.listener(request, response);
  });
  harden(http);
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  return {
    url,
    store: opened,
    vaults: vaults?.parts ?? null,
    vaultUrl: vaults?.client.url ?? null,
    vaultProxy: vaults?.client ?? null,
    logged,
    client: new Anthropic({ apiKey: API_KEY, baseURL: url, maxRetries: 0 }),
    call: (method, path, body, headers) => call(url, method, path, body, headers),
    holdAnswers: (stored) => {
      onStored = stored;
    },
    answersHeld: () => gone,
    stop: () => server.close(),
    async close() {
      server.close();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
      await vaults?.close();
      await opened.close();
      await rm(dir, { recursive: true });
    },
  };
}

/** A vault proxy in this process, reached as the gateway reaches one. */
async function startVaults(
  dir: string,
  log: pino.Logger,
  { internalHosts = [], gitOrigins = [] }: { readonly internalHosts?: readonly string[]; readonly gitOrigins?: readonly string[] },
): Promise<{ client: VaultProxy; parts: VaultParts; close(): Promise<void> }> {
  const keysDir = join(dir, "keys");
  await ensureKeys(keysDir);
  const parts = await openVaultParts(log, { internalHosts, gitOrigins });
  const serving = await serve({
    ...parts,
    host: "127.0.0.1",
    port: 0,
    grantKeyFile: join(keysDir, "grant.public.jwk"),
    models: plainModels(ownProvider(new URL("http://127.0.0.1:9"), fixedKey(null))),
    headersTimeoutMs: 1_000,
    idleTimeoutMs: 1_000,
    log,
  });
  const client = await VaultProxy.open({ url: serving.url, keysDir, log });
  return {
    client,
    parts,
    async close() {
      await client.close();
      await serving.close();
      await parts.close();
    },
  };
}

async function call(url: string, method: string, path: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> {
  const answer = await fetch(`${url}${path}`, {
    method,
    headers: { "x-api-key": API_KEY, ...headers },
    ...(body !== undefined && { body: typeof body === "string" || body instanceof Uint8Array ? (body as string) : JSON.stringify(body) }),
  });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, body: text === "" ? null : JSON.parse(text) };
}

let names = 0;
export const newName = (): string => `name-${Date.now()}-${names++}`;

export async function makeAgent(api: Api, fields: object = {}) {
  return api.client.beta.agents.create({ name: newName(), model: "claude-test", ...fields });
}
export async function makeEnvironment(api: Api, fields: object = {}) {
  return api.client.beta.environments.create({ name: newName(), ...fields });
}
export async function makeSession(api: Api, fields: object = {}) {
  const [agent, environment] = await Promise.all([makeAgent(api), makeEnvironment(api)]);
  return api.client.beta.sessions.create({ agent: agent.id, environment_id: environment.id, ...fields });
}

export const say = (text: string) => ({ type: "user.message" as const, content: [{ type: "text" as const, text }] });
