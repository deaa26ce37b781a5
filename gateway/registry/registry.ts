// The registry of hands: MCP servers that somebody named once, for every agent of a workspace to use.
//
//   G1  A server is registered after a real handshake with it, and with what it said; one that can't be reached only where that is asked for.
//   G2  A command is never taken from a request: `stdio` is the name of a server in the operator's file, which the hand host reads.
//   G3  The servers of that file are hands without anyone registering them, and stay as long as the file names them.
//   G4  What was approved stays approved until somebody changes that: a look at a server holds back what differs (hands/pins.ts).
//   G5  Hands are looked at again by themselves (rounds.ts): what is shown of one is not older than that.

import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import type { Hands } from "../../hands/hand.ts";
import { approved, type Pins, pinned } from "../../hands/pins.ts";
import { changeHand, findHand, HAND_KIND, HandName, RegisteredHand } from "../../hands/registry.ts";
import type { Document, Documents } from "../../session-store/documents.ts";
import { mint } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import { invalid } from "../answer.ts";
import type { VaultProxy } from "../vault-proxy.ts";
import { type Probe, probe } from "./probe.ts";
import { Rounds } from "./rounds.ts";

/** `hand:session` in an agent's servers is the session's own log. */
const LOG_NAME = "session";
/** How long a name of the operator's file may be unknown. */
const ADOPT_EVERY_MS = 5_000;
const ADOPT_MS = 2_000;
const RETRY_MS_MIN = 250;
const RETRY_MS_MAX = 10_000;

const UNKNOWN: RegisteredHand["health"] = { status: "unknown", checked_at: null, error: null, server: null, protocol_version: null };
const NO_PINS: Pins = { tools: null, held_back: [], missing: [] };
const NO_LIMITS: RegisteredHand["timeouts"] = { connect_ms: null, idle_ms: null, total_ms: null };

/** What a caller says of a hand; the rest comes from its server. */
type HandConfig = Pick<RegisteredHand, "name" | "description" | "transport" | "sharing" | "vault_ids" | "allowed_tools" | "timeouts">;

interface RegistryOptions {
  readonly documents: Documents;
  /** Null: this installation has no hand host. */
  readonly hands: Hands | null;
  /** Null: this installation has none, and so no vaults. */
  readonly vaultProxy: VaultProxy | null;
  readonly log: Logger;
  /** How often a hand is looked at by itself; 0: never. G5 */
  readonly checkEveryMs: number;
}

export class Registry {
  readonly #options: RegistryOptions;
  readonly #end = new AbortController();
  readonly #unfit = new Set<string>();
  #adopting: Promise<void> | null = null;
  #adoptedAt = Number.NEGATIVE_INFINITY;

  constructor(options: RegistryOptions) {
    this.#options = options;
  }

  /** Takes the servers of the operator's file in, as soon as the hand host can say which they are. G3 G5 */
  async start(workspace: string): Promise<void> {
    const { signal } = this.#end;
    const { hands, documents, log, checkEveryMs } = this.#options;
    if (hands === null) return;
    const check = (...hand: Parameters<Registry["check"]>) => this.check(...hand);
    if (checkEveryMs > 0) void new Rounds({ documents, everyMs: checkEveryMs, log, check }).run(workspace, signal);
    for (let waitMs = RETRY_MS_MIN; !signal.aborted; waitMs = Math.min(waitMs * 2, RETRY_MS_MAX)) {
      if (await this.adopt(workspace)) return;
      await sleep(waitMs, undefined, { signal }).catch(() => {});
    }
  }

  close(): void {
    this.#end.abort();
  }

  async find(workspace: string, name: string): Promise<Document> {
    await this.adopt(workspace);
    const document = await this.#options.documents.get(workspace, HAND_KIND, name);
    if (!document || document.isArchived) throw new Refusal("not_found", "There is no such hand.");
    return document;
  }

  /** May an agent name it? */
  async isKnown(workspace: string, name: string): Promise<boolean> {
    const { documents } = this.#options;
    if ((await findHand(documents, workspace, name)) !== null) return true;
    await this.adopt(workspace);
    return (await findHand(documents, workspace, name)) !== null;
  }

  /** G1 G2. The same request again is answered with what the first one made. */
  async register(workspace: string, config: HandConfig, request: { digest: string; mayBeUnreachable: boolean }): Promise<Document> {
    const { documents, log } = this.#options;
    if (config.name === LOG_NAME) throw invalid("name: is that of the session's own log");
    await this.adopt(workspace);
    const before = await documents.get(workspace, HAND_KIND, config.name);
    if (before) return sameOrTaken(before, request.digest);
    const seen = await this.#look(workspace, config, request.mayBeUnreachable);
    const body: RegisteredHand = { ...config, source: "api", digest: request.digest, ...seen };
    try {
      const [document] = await documents.put(workspace, [{ kind: HAND_KIND, id: config.name, body, replaces: 0 }]);
      if (!document) throw new Error("a put of one document gave none");
      log.info({ hand: config.name, tools: body.tools?.length ?? 0, held: body.held_back.length, status: body.health.status }, "hand.registered");
      return document;
    } catch (error) {
      if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
      return sameOrTaken(await this.find(workspace, config.name), request.digest);
    }
  }

  /** Another way to reach it makes it another server: what that offers is read and approved anew. */
  async update(workspace: string, name: string, change: Partial<Omit<HandConfig, "name">>, mayBeUnreachable: boolean): Promise<Document> {
    const present = RegisteredHand.parse((await this.find(workspace, name)).body);
    const isMoved = change.transport !== undefined && JSON.stringify(change.transport) !== JSON.stringify(present.transport);
    if (isMoved && present.source === "file") throw invalid("transport: is the operator's file's to say");
    const seen = isMoved ? await this.#look(workspace, { ...present, ...change }, mayBeUnreachable) : {};
    await this.#change(workspace, name, ({ digest: _, ...before }) => ({ ...before, ...change, ...seen }));
    return this.find(workspace, name);
  }

  /** Asks the server now, and keeps what it says. G4 */
  async check(workspace: string, name: string): Promise<Document> {
    const { log } = this.#options;
    const record = RegisteredHand.parse((await this.find(workspace, name)).body);
    const seen = await this.#probe(workspace, record);
    const health = healthOf(seen);
    const failing_since = health.status === "failed" ? (record.failing_since ?? health.checked_at) : null;
    const kept = { health, failing_since };
    await this.#change(workspace, name, (before) => ({ ...before, ...kept, ...(seen.type === "ready" ? pinned(before, seen.tools) : {}) }));
    log[health.status === record.health.status ? "debug" : "info"]({ hand: name, status: health.status }, "hand.checked");
    return this.find(workspace, name);
  }

  /** Approves held-back tools as they stand in the record: all of them, or those named, each by its hash where one is given. G4 */
  async approve(
    workspace: string,
    name: string,
    wanted: readonly { readonly name: string; readonly hash?: string | null | undefined }[] | null,
    by: string,
  ): Promise<Document> {
    let names: ReadonlySet<string> = new Set();
    await this.find(workspace, name);
    await this.#change(workspace, name, (before) => {
      for (const [index, { name: tool, hash }] of (wanted ?? []).entries()) {
        const held = before.held_back.find((each) => each.name === tool);
        if (held === undefined) throw invalid(`tools.${index}.name: no tool of this name is held back`);
        if (hash != null && hash !== held.hash) throw new Refusal("conflict", `tools.${index}.hash: the tool's definition is another one by now`);
      }
      names = new Set((wanted ?? before.held_back).map((tool) => tool.name));
      return names.size === 0 ? null : { ...before, ...approved(before, names) };
    });
    this.#options.log.info({ hand: name, tools: [...names], by }, "hand.approved");
    return this.find(workspace, name);
  }

  /** G3 */
  async remove(workspace: string, name: string): Promise<void> {
    const { documents, log } = this.#options;
    const record = RegisteredHand.parse((await this.find(workspace, name)).body);
    if (record.source === "file" && (await this.#configured()).includes(name))
      throw new Refusal("conflict", "The hand is a server of the operator's file: it goes when the file no longer names it.");
    await documents.discard(workspace, HAND_KIND, name).catch((error: unknown) => {
      if (!(error instanceof Refusal && error.code === "document_not_found")) throw error;
    });
    log.info({ hand: name }, "hand.removed");
  }

  /** Makes records of what the operator's file names, and looks at each new one. False: the hand host could not say. G3 */
  async adopt(workspace: string): Promise<boolean> {
    if (this.#options.hands === null || performance.now() - this.#adoptedAt < ADOPT_EVERY_MS) return true;
    this.#adopting ??= this.#adopt(workspace).finally(() => {
      this.#adopting = null;
    });
    try {
      await this.#adopting;
      return true;
    } catch (error) {
      if (!(error instanceof Refusal) && !isTimeout(error)) throw error;
      this.#options.log.debug({ err: error }, "hands.not_adopted");
      return false;
    }
  }

  async #adopt(workspace: string): Promise<void> {
    const { documents, log } = this.#options;
    const added: string[] = [];
    for (const name of await this.#configured()) {
      if (!HandName.safeParse(name).success || name === LOG_NAME) {
        if (!this.#unfit.has(name)) log.warn({ server: name }, "hand.name_unfit");
        this.#unfit.add(name);
        continue;
      }
      const known = await findHand(documents, workspace, name);
      if (known !== null) continue;
      const body: RegisteredHand = { ...fromFile(name), ...NO_PINS, health: UNKNOWN };
      try {
        await documents.put(workspace, [{ kind: HAND_KIND, id: name, body, replaces: 0 }]);
        added.push(name);
      } catch (error) {
        if (!(error instanceof Refusal && error.code === "document_changed")) throw error;
      }
    }
    this.#adoptedAt = performance.now();
    if (added.length > 0) void this.#lookAt(workspace, added);
  }

  /** One after the other, and nobody waits for it. */
  async #lookAt(workspace: string, names: readonly string[]): Promise<void> {
    const { log } = this.#options;
    log.info({ hands: names }, "hands.adopted_from_file");
    for (const name of names) {
      if (this.#end.signal.aborted) return;
      try {
        await this.check(workspace, name);
      } catch (error) {
        log.warn({ hand: name, err: error }, "hand.not_checked");
      }
    }
  }

  async #configured(): Promise<readonly string[]> {
    const { hands } = this.#options;
    if (hands === null) return [];
    try {
      return await hands.configured(AbortSignal.any([AbortSignal.timeout(ADOPT_MS), this.#end.signal]));
    } catch (error) {
      if (isTimeout(error)) throw new Refusal("hand_lost", undefined, { cause: error });
      throw error;
    }
  }

  /** What a server is found to be; refuses where that is nothing. G1 G2 */
  async #look(workspace: string, config: HandConfig, mayBeUnreachable: boolean): Promise<Pins & Pick<RegisteredHand, "health">> {
    const { transport } = config;
    if (transport.type === "stdio" && !(await this.#configured()).includes(transport.server))
      throw invalid("transport.server: the operator's file names no such server");
    const seen = await this.#probe(workspace, config);
    if (seen.type === "ready") return { ...pinned(NO_PINS, seen.tools), health: healthOf(seen) };
    if (!mayBeUnreachable)
      throw invalid(`The server could not be used: ${seen.says}. With \`allow_unreachable\` it is registered all the same.`, {
        error_code: "hand_unreachable",
      });
    return { ...NO_PINS, health: healthOf(seen) };
  }

  async #probe(workspace: string, config: HandConfig): Promise<Probe> {
    const { hands, vaultProxy, log } = this.#options;
    const asking = { principal: { workspace, name: "registry" }, requestId: mint("req") };
    const grant = config.vault_ids.length === 0 ? undefined : await vaultProxy?.handGrant(asking, config.name, config.vault_ids);
    return await probe(hands, config, { log, grant: grant?.text });
  }

  async #change(workspace: string, name: string, change: (before: RegisteredHand) => RegisteredHand | null): Promise<void> {
    const changed = await changeHand(this.#options.documents, workspace, name, change);
    if (changed === null) throw new Refusal("not_found", "There is no such hand.");
  }
}

const isTimeout = (error: unknown): boolean => error instanceof Error && (error.name === "TimeoutError" || error.name === "AbortError");

function sameOrTaken(document: Document, digest: string): Document {
  if (RegisteredHand.parse(document.body).digest === digest) return document;
  throw new Refusal("name_taken", "name: a hand of this name is registered");
}

function healthOf(seen: Probe): RegisteredHand["health"] {
  const checked_at = Date.now();
  if (seen.type === "failed") return { status: "failed", checked_at, error: seen.says, server: null, protocol_version: null };
  return { status: "ready", checked_at, error: null, server: seen.server, protocol_version: seen.protocolVersion };
}

const fromFile = (name: string): Omit<RegisteredHand, keyof Pins | "health"> => ({
  name,
  source: "file",
  description: "",
  transport: { type: "stdio", server: name },
  sharing: "session",
  vault_ids: [],
  allowed_tools: null,
  timeouts: NO_LIMITS,
});
