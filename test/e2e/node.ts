// A whole node inside the test's process: embedded store, hand host, vault proxy, scripted model and a worker, all real, on loopback.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { exportJWK, generateKeyPair } from "jose";
import { type Logger, pino } from "pino";
import { type HandsClient, makeHands } from "../../hands/client.ts";
import type { Hands } from "../../hands/hand.ts";
import { HandHost } from "../../hands/host.ts";
import { openDoor } from "../../hands/http.ts";
import { Ledger } from "../../hands/ledger.ts";
import { SERVER_SETTINGS, type ServerSettings } from "../../hands/servers/hands.ts";
import { virtualDriver } from "../../hands/virtual/sandbox.ts";
import { claudeHarness } from "../../harnesses/claude/harness.ts";
import { grantMinter } from "../../harnesses/grant.ts";
import type { Harness } from "../../harnesses/harness.ts";
import type { HandsDoor } from "../../harnesses/host-context.ts";
import type { WarmViews } from "../../harnesses/warm-views.ts";
import { startWorker, type Worker } from "../../harnesses/worker.ts";
import { admit } from "../../session-store/admit.ts";
import { openEmbeddedStore } from "../../session-store/drivers/embedded/driver.ts";
import type { Stored } from "../../session-store/entry.ts";
import type { ClientEvent, ClientInput } from "../../session-store/events/client.ts";
import { eventOf } from "../../session-store/events/client.ts";
import type { AgentSnapshot, AgentTool } from "../../session-store/events/log.ts";
import type { FaultPoint } from "../../session-store/fault-point.ts";
import type { Position, SessionId } from "../../session-store/ids.ts";
import { mintEvent, mintSession, position } from "../../session-store/ids.ts";
import { statusOf } from "../../session-store/session.ts";
import type { Preview, SessionStore } from "../../session-store/store.ts";
import { fixedKey } from "../../vault-proxy/model-key.ts";
import { ownProvider, plainModels } from "../../vault-proxy/models/providers.ts";
import { serve } from "../../vault-proxy/serve.ts";
import { agent } from "../harnesses/agents.ts";
import { type ScriptedModel, startModel } from "../support/model/server.ts";
import { openVaultParts } from "../support/vault-parts.ts";
import { Signer } from "../vault-proxy/signer.ts";

/** Threads run built files. */
const THREAD = new URL("../../dist/hands/virtual/thread.js", import.meta.url);
const DEADLINE_MS = 30_000;
const POLL_MS = 20;

export interface NodeOptions {
  /** How MCP servers are reached; those of this machine are, unless this says otherwise. */
  readonly servers?: Partial<ServerSettings>;
  /** Hosts of this machine to which credentials may go. */
  readonly internalHosts?: readonly string[];
  readonly leaseMs?: number;
  readonly idleMs?: number;
  readonly harness?: Harness;
  readonly fault?: FaultPoint;
}

export interface WorkerChoice {
  readonly fault?: FaultPoint;
  readonly harness?: Harness;
  /** What this worker sees of the store. */
  readonly store?: SessionStore;
  /** What this worker sees of the hands. */
  readonly hands?: Hands;
  readonly handsDoor?: HandsDoor;
  /** What this worker keeps of sessions that it drove. */
  readonly views?: WarmViews;
}

export class TestNode {
  readonly store: SessionStore;
  readonly model: ScriptedModel;
  readonly hands: HandsClient;
  /** The installation's signing key. */
  readonly keyFile: string;
  readonly logged: Record<string, unknown>[];
  /** The vault proxy, and who signs what it believes. */
  readonly vaultUrl: string;
  readonly signer: Signer;
  /** What the hand host and the vault proxy logged, line by line. */
  readonly others: readonly string[];
  readonly #startWorker: (choice: WorkerChoice) => Promise<Worker>;
  readonly #stops: (() => Promise<void>)[];
  readonly #workers: Worker[] = [];

  constructor(
    parts: {
      readonly store: SessionStore;
      readonly model: ScriptedModel;
      readonly hands: HandsClient;
      readonly keyFile: string;
      readonly vault: { readonly url: string; readonly signer: Signer; readonly others: readonly string[] };
    },
    logged: Record<string, unknown>[],
    start: (choice: WorkerChoice) => Promise<Worker>,
    stops: (() => Promise<void>)[],
  ) {
    this.store = parts.store;
    this.model = parts.model;
    this.hands = parts.hands;
    this.keyFile = parts.keyFile;
    this.vaultUrl = parts.vault.url;
    this.signer = parts.vault.signer;
    this.others = parts.vault.others;
    this.logged = logged;
    this.#startWorker = start;
    this.#stops = stops;
  }

  async work(choice: WorkerChoice = {}): Promise<Worker> {
    const worker = await this.#startWorker(choice);
    this.#workers.push(worker);
    return worker;
  }

  async open(tools: readonly AgentTool[] = [], more: Partial<AgentSnapshot> = {}, vaultIds: readonly string[] = []): Promise<TestSession> {
    const id = mintSession();
    await this.store.create({
      id,
      created: {
        type: "log.created",
        workspace: "default",
        agent: agent(tools, more),
        environment_id: "env_1",
        title: null,
        metadata: {},
        resources: [],
        vault_ids: vaultIds,
      },
      entries: [],
    });
    return new TestSession(this, id);
  }

  /** Ends the workers, and forgets what the model was asked. */
  async rest(): Promise<void> {
    await Promise.all(this.#workers.splice(0).map((worker) => worker.drain(5_000)));
    this.model.clear();
  }

  async close(): Promise<void> {
    await this.rest();
    for (const stop of this.#stops) await stop();
  }
}

export class TestSession {
  readonly node: TestNode;
  readonly id: SessionId;

  constructor(node: TestNode, id: SessionId) {
    this.node = node;
    this.id = id;
  }

  /** Sends as the gateway does: admitted, then received behind the gate. */
  async send(...inputs: readonly ClientInput[]): Promise<void> {
    const events = inputs.map((input): ClientEvent => eventOf(mintEvent(), input));
    for (;;) {
      const record = await this.node.store.getSession(this.id);
      const { entries, onlyIdle } = admit(record, events);
      const answer = await this.node.store.receive(this.id, entries, { gate: record.gate, onlyIdle });
      if (answer !== "moved") return;
    }
  }

  say(text: string): Promise<void> {
    return this.send({ type: "user.message", content: [{ type: "text", text }] });
  }

  /** The event id of the n-th call, of a tool or a custom one. */
  async callId(n = 1): Promise<string> {
    let ids: string[] = [];
    await until(async () => {
      const log = await this.log();
      ids = log.flatMap(({ entry }) => (entry.type.endsWith("tool_use") && "id" in entry ? [entry.id] : []));
      return ids.length >= n;
    }, `call ${n}`);
    return ids[n - 1] ?? "";
  }

  answer(call: string, text: string): Promise<void> {
    return this.send({ type: "user.custom_tool_result", custom_tool_use_id: call, content: [{ type: "text", text }] });
  }

  interrupt(): Promise<void> {
    return this.send({ type: "user.interrupt" });
  }

  async log(): Promise<readonly Stored[]> {
    const all: Stored[] = [];
    for (;;) {
      const page = await this.node.store.getEvents(this.id, { after: position(all.length) });
      if (page.length === 0) return all;
      all.push(...page);
    }
  }

  /** What the API's list shows, by type: wire events, and applied ones under their own type. */
  async types(after = 0): Promise<readonly string[]> {
    return wireTypes(await this.log(), after);
  }

  async head(): Promise<Position> {
    return (await this.node.store.getSession(this.id)).head;
  }

  async texts(): Promise<readonly string[]> {
    const log = await this.log();
    return log.flatMap(({ entry }) => (entry.type === "agent.message" ? [entry.content.map(({ text }) => text).join("")] : []));
  }

  async results(): Promise<readonly { readonly text: string; readonly isError: boolean }[]> {
    const log = await this.log();
    return log.flatMap(({ entry }) =>
      entry.type === "agent.tool_result" || entry.type === "agent.mcp_tool_result" || entry.type === "user.custom_tool_result"
        ? [{ text: entry.content.map((block) => (block.type === "text" ? block.text : block.type)).join(""), isError: entry.is_error }]
        : [],
    );
  }

  async status(): Promise<string> {
    return statusOf(await this.node.store.getSession(this.id));
  }

  /** Waits until the session is idle, its last entry included. */
  async idle(): Promise<void> {
    await until(async () => (await this.status()) === "idle", "the session is idle");
  }

  /** Waits until the log holds `count` entries of a type. */
  async has(type: string, count = 1): Promise<Stored> {
    let found: Stored[] = [];
    await until(async () => {
      found = (await this.log()).filter(({ entry }) => entry.type === type);
      return found.length >= count;
    }, `${count} ${type}`);
    const last = found[count - 1];
    if (!last) throw new Error("unreachable");
    return last;
  }

  async previews(): Promise<{ readonly heard: readonly Preview[]; stop(): void }> {
    const heard: Preview[] = [];
    const stop = await this.node.store.listen(this.id, (bell) => {
      if (bell.type === "preview") heard.push(bell.preview);
    });
    return { heard, stop };
  }
}

function wireTypes(log: readonly Stored[], after = 0): readonly string[] {
  const received = new Map(log.flatMap(({ entry }) => (entry.type === "log.received" ? [[entry.event.id, entry.event.type] as const] : [])));
  return log
    .filter((stored) => stored.position > after)
    .flatMap(({ entry }) => {
      if (entry.type === "log.applied") return [received.get(entry.id) ?? "?"];
      if (entry.type === "log.received") return entry.waits ? [] : [entry.event.type];
      return entry.type.startsWith("log.") ? [] : [entry.type];
    });
}

export async function until(holds: () => Promise<boolean> | boolean, what: string, deadlineMs = DEADLINE_MS): Promise<void> {
  const deadline = Date.now() + deadlineMs;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`Not within ${deadlineMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Everything but a worker; `work` starts those. */
export async function startNode(options: NodeOptions = {}): Promise<TestNode> {
  const dir = await mkdtemp(join(tmpdir(), "manyhands-node-"));
  const logged: Record<string, unknown>[] = [];
  const log = pino({ level: "debug" }, { write: (line: string) => logged.push(JSON.parse(line) as Record<string, unknown>) });
  const others: string[] = [];
  const quiet: Logger = pino({ level: "debug" }, { write: (line: string) => others.push(line) });

  const { publicKey, privateKey } = await generateKeyPair("EdDSA", { extractable: true });
  const signer = Signer.of(privateKey, "k1");
  const privateFile = join(dir, "grant.private.jwk");
  const publicFile = join(dir, "grant.public.jwk");
  await writeFile(privateFile, JSON.stringify({ ...(await exportJWK(privateKey)), kid: "k1", alg: "EdDSA" }));
  await writeFile(publicFile, JSON.stringify({ ...(await exportJWK(publicKey)), kid: "k1", alg: "EdDSA" }));

  const model = await startModel({ key: "model-key" });
  const parts = await openVaultParts(quiet, { internalHosts: options.internalHosts ?? [] });
  const vault = await serve({
    ...parts,
    host: "127.0.0.1",
    port: 0,
    grantKeyFile: publicFile,
    models: plainModels(ownProvider(new URL(model.url), fixedKey("model-key"))),
    headersTimeoutMs: 30_000,
    idleTimeoutMs: 30_000,
    log: quiet,
  });

  const ledger = Ledger.open(join(dir, "hands"), (error) => log.error({ error }, "ledger.failed"));
  const servers = {
    ...SERVER_SETTINGS,
    internalHosts: ["*"],
    vaultUrl: vault.url,
    environment: { PATH: process.env.PATH ?? "" },
    ...options.servers,
  };
  const host = new HandHost({ ledger, driver: virtualDriver(THREAD), dataDir: join(dir, "hands"), log: quiet, servers });
  await host.start();
  const door = await openDoor({ host, handKey: "hand-key", address: "127.0.0.1", port: 0, log: quiet });
  const hands = makeHands({
    resolve: async () => ({ url: door.url, boot: host.identity().boot }),
    local: { url: door.url },
    handKey: "hand-key",
    log: quiet,
    handLostMs: 1_000,
  });

  const store = await openEmbeddedStore({ dir: join(dir, "store"), leaseMs: options.leaseMs ?? 15_000 });
  const mintGrant = await grantMinter(privateFile);
  const harness = options.harness ?? claudeHarness(options.idleMs === undefined ? {} : { idleMs: options.idleMs });
  const start = (choice: WorkerChoice) => {
    const fault = choice.fault ?? options.fault;
    return startWorker({
      store: choice.store ?? store,
      hands: choice.hands ?? hands,
      mintGrant,
      vaultUrl: vault.url,
      harness: choice.harness ?? harness,
      log,
      ...(fault ? { fault } : {}),
      ...(choice.views ? { views: choice.views } : {}),
      ...(choice.handsDoor ? { handsDoor: choice.handsDoor } : {}),
    });
  };
  const stops = [
    () => hands.close(),
    async () => {
      door.close();
      await host.stop();
      await door.cut();
    },
    () => vault.close(),
    () => parts.close(),
    () => model.close(),
    () => store.close(),
    () => rm(dir, { recursive: true, force: true }),
  ];
  const vaultPart = { url: vault.url, signer, others };
  return new TestNode({ store, model, hands, keyFile: privateFile, vault: vaultPart }, logged, start, stops);
}
