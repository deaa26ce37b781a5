// What a log says of the session's repositories, and of the hand that was asked to have them.
//
//   Y1  A hand is asked once for a repository, and again only if its token was changed after the hand did not get it.

import type { Stored } from "../session-store/entry.ts";
import type { SessionResource } from "../session-store/events/log.ts";
import type { Position } from "../session-store/ids.ts";

export class KnownRepositories {
  #all: readonly SessionResource[] = [];
  /** By resource: where the log last changed it. */
  readonly #changed = new Map<string, Position>();
  #asked: { readonly hand: string; readonly failed: readonly string[]; readonly at: Position } | null = null;

  get all(): readonly SessionResource[] {
    return this.#all;
  }

  /** What this hand is still to be asked for. Y1 */
  missingIn(hand: string): readonly SessionResource[] {
    const asked = this.#asked;
    if (asked?.hand !== hand) return this.#all;
    return this.#all.filter(({ id }) => asked.failed.includes(id) && (this.#changed.get(id) ?? 0) > asked.at);
  }

  /** Of this hand, those that it did not get and is not asked for now. */
  failedIn(hand: string): readonly string[] {
    return this.#asked?.hand === hand ? this.#asked.failed : [];
  }

  take({ entry, position }: Stored): void {
    if (entry.type === "log.created") this.#all = entry.resources ?? [];
    if (entry.type === "log.repositories") this.#asked = { hand: entry.hand, failed: entry.failed, at: position };
    if (entry.type !== "log.resources") return;
    for (const { id, updated_at } of entry.resources) {
      if (this.#all.find((each) => each.id === id)?.updated_at !== updated_at) this.#changed.set(id, position);
    }
    this.#all = entry.resources;
  }
}

/** What a model is told beside its agent's own words: where things are. The same for the whole session. */
export function withRepositories(system: string | null, repositories: readonly SessionResource[]): string | null {
  if (repositories.length === 0) return system;
  const lines = repositories.map(({ url, mount_path, checkout }) => {
    const at = checkout === null ? "" : checkout.type === "branch" ? `, branch ${checkout.name}` : `, commit ${checkout.sha}`;
    return `- ${url} in ${mount_path}${at}`;
  });
  const told = [
    "Repositories of this session, cloned before your first command runs:",
    ...lines,
    "git fetch, git pull and git push work in these folders as they are: whatever credential they need is added outside of this machine, and none is to be " +
      "found or set up in it. A folder that is not there could not be cloned.",
  ].join("\n");
  return system === null || system === "" ? told : `${system}\n\n${told}`;
}
