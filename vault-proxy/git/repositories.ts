// The repositories of each session, with the tokens that open them: one sealed record a session.
//
//   G1  A session reaches the repositories of its own record and no others.
//   G2  Tokens are read anew for every use: a changed one counts from the next request on, on every proxy.
//   G3  A record goes with its session. One whose session never came about, or whose end nobody told us of, is found by the gateway's sweep.

import { z } from "zod";
import { StoreTrouble, type VaultStore } from "../store.ts";

const TRIES_MAX = 5;
export const REPOSITORIES_MAX = 50;
/** A younger record may be of a session that is being made. */
const GRACE_MS = 600_000;

const Repository = z.strictObject({ url: z.string(), token: z.string().nullable() });
const Kept = z.strictObject({ repositories: z.array(Repository).max(REPOSITORIES_MAX), changedAt: z.number() });
export type Repository = Readonly<z.infer<typeof Repository>>;

const keyOf = (workspace: string, session: string) => ({ workspace, kind: "repository" as const, id: session });

export class Repositories {
  readonly #store: VaultStore;
  readonly #now: () => number;

  constructor(store: VaultStore, now: () => number = Date.now) {
    this.#store = store;
    this.#now = now;
  }

  /** G1 G2. Throws the store's trouble. */
  async of(workspace: string, session: string): Promise<readonly Repository[]> {
    return (await this.#read(workspace, session)).repositories;
  }

  /** Replaces the session's record; a token that is `undefined` stays the one that it is. */
  async put(
    workspace: string,
    session: string,
    wanted: readonly { readonly url: string; readonly token: string | null | undefined }[],
  ): Promise<void> {
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const { repositories: before, revision } = await this.#read(workspace, session);
      const repositories = wanted.map(({ url, token }) => ({
        url,
        token: token === undefined ? (before.find((each) => each.url === url)?.token ?? null) : token,
      }));
      const body = { repositories, changedAt: this.#now() };
      if ((await this.#store.put(keyOf(workspace, session), body, revision)) !== "changed") return;
    }
    throw new StoreTrouble("busy", "a session's repositories are changed again and again");
  }

  /** G3 */
  async remove(workspace: string, session: string): Promise<void> {
    await this.#store.remove(keyOf(workspace, session));
  }

  /** Sessions that have a record. G3 */
  async sessions(workspace: string): Promise<readonly string[]> {
    return await this.#store.ids(workspace, "repository");
  }

  /** Removes what belongs to a session that is gone, but nothing young. Gives whether it did. G3 */
  async sweep(workspace: string, session: string): Promise<boolean> {
    const { changedAt } = await this.#read(workspace, session);
    if (changedAt === null || changedAt > this.#now() - GRACE_MS) return false;
    await this.remove(workspace, session);
    return true;
  }

  async #read(
    workspace: string,
    session: string,
  ): Promise<{ readonly repositories: readonly Repository[]; readonly changedAt: number | null; readonly revision: number }> {
    const found = await this.#store.get(keyOf(workspace, session));
    if (found === null) return { repositories: [], changedAt: null, revision: 0 };
    const kept = Kept.safeParse(found.body);
    if (!kept.success) throw new StoreTrouble("unreadable", "a session's repositories");
    return { ...kept.data, revision: found.revision };
  }
}
