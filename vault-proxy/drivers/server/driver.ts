// Vaults in a Vault or OpenBao server: one secret of its key-value store (version 2) for each record, for any number of vault proxies.
//
//   S4  Every write is a check-and-set against the version that was read. One that got no answer is repeated once; each carries a mark by which its own
//       success is known again, so that a lost answer is no false "changed".
//   S5  Each secret is told to keep one version before it holds anything: what was replaced is gone (T4). Removing takes the metadata as well.

import { randomBytes } from "node:crypto";
import type { Logger } from "pino";
import { z } from "zod";
import { checkKey, type Opened, type RecordKey, type RecordKind, StoreTrouble, textOf, type VaultStore } from "../../store.ts";
import { read, ServerClient, type ServerLogin, ServerRefusal } from "./client.ts";

export interface ServerVaultOptions extends ServerLogin {
  /** Where the key-value store is mounted, and what our records begin with there. */
  readonly mount: string;
  readonly prefix: string;
}

const Read = z.object({
  data: z.object({ data: z.object({ mark: z.string(), body: z.string() }).nullable(), metadata: z.object({ version: z.int().min(1) }) }),
});
const Written = z.object({ data: z.object({ version: z.int().min(1) }) });
const Names = z.object({ data: z.object({ keys: z.array(z.string()) }) });

const NOT_THERE = 404;
const REFUSED = 400;

export class ServerVault implements VaultStore {
  readonly driver = "server";
  readonly #options: ServerVaultOptions;
  readonly #client: ServerClient;

  constructor(options: ServerVaultOptions, log: Logger) {
    this.#options = options;
    this.#client = new ServerClient(options, log);
  }

  async get(key: RecordKey): Promise<Opened | null> {
    const found = await this.#read(key);
    return found && { body: JSON.parse(found.body), revision: found.revision };
  }

  async put(key: RecordKey, body: unknown, replaces: number): Promise<number | "changed"> {
    const [data, metadata] = [this.#path("data", key), this.#path("metadata", key)];
    const mark = randomBytes(9).toString("base64url");
    const written = { options: { cas: replaces }, data: { mark, body: textOf(body) } };
    // Told again it means the same.
    if (replaces === 0) await this.#client.run((client) => client.write(metadata, { max_versions: 1, cas_required: true })).catch(asTrouble);
    const write = () => this.#client.run((client) => client.write(data, written));
    try {
      const answer = await write().catch((error: unknown) => {
        if (error instanceof StoreTrouble && error.reason === "in_doubt") return write();
        throw error;
      });
      return read(Written, answer).data.version;
    } catch (error) {
      if (!(error instanceof ServerRefusal) || error.status !== REFUSED || !error.says.includes("check-and-set")) return asTrouble(error);
    }
    const found = await this.#read(key);
    return found?.mark === mark ? found.revision : "changed";
  }

  async remove(key: RecordKey): Promise<void> {
    await this.#client.run((client) => client.delete(this.#path("metadata", key))).catch(unlessNotThere);
  }

  async ids(workspace: string, kind: RecordKind): Promise<readonly string[]> {
    checkKey({ workspace, kind, id: "x" });
    const { mount, prefix } = this.#options;
    const answer = await this.#client.run((client) => client.list(`${mount}/metadata/${prefix}/${kind}/${workspace}`)).catch(unlessNotThere);
    return answer === null
      ? []
      : read(Names, answer)
          .data.keys.filter((name) => !name.endsWith("/"))
          .sort();
  }

  close(): Promise<void> {
    return this.#client.close();
  }

  async #read(key: RecordKey): Promise<{ mark: string; body: string; revision: number } | null> {
    const answer = await this.#client.run((client) => client.read(this.#path("data", key))).catch(unlessNotThere);
    if (answer === null) return null;
    const { data, metadata } = read(Read, answer).data;
    return data && { ...data, revision: metadata.version };
  }

  #path(part: "data" | "metadata", key: RecordKey): string {
    checkKey(key);
    const { mount, prefix } = this.#options;
    return `${mount}/${part}/${prefix}/${key.kind}/${key.workspace}/${key.id}`;
  }
}

/** A refusal that no request of ours should meet. */
function asTrouble(error: unknown): never {
  if (error instanceof ServerRefusal)
    throw new StoreTrouble(
      error.status === NOT_THERE ? "away" : "denied",
      `${error.status}: is the key-value store (version 2) mounted, and does the policy allow it?`,
    );
  throw error;
}

/** A miss is a 404 without errors; with one, the mount itself is not there. */
function unlessNotThere(error: unknown): null {
  const isMiss = error instanceof ServerRefusal && error.status === NOT_THERE && !error.says.startsWith("no handler");
  return isMiss ? null : asTrouble(error);
}
