// What a log says of the session's repositories, and of the hand that was asked to have them.
//
//   Y1  A hand is asked once for a repository that it got. For one that it did not get it is asked once a turn, and when the token was changed.
//   Y2  What failed as it failed before is not told again, unless the token was changed meanwhile.

import type { Stored } from "../session-store/entry.ts";
import type { SessionResource } from "../session-store/events/log.ts";
import type { Position } from "../session-store/ids.ts";

export class KnownRepositories {
  #all: readonly SessionResource[] = [];
  /** By resource: where the log last changed it. */
  readonly #changed = new Map<string, Position>();
  /** By address: what was told of it last. */
  readonly #told = new Map<string, string>();
  /** Where the session last began to run. */
  #ranAt = 0;
  #asked: { readonly hand: string; readonly failed: readonly string[]; readonly at: Position } | null = null;

  get all(): readonly SessionResource[] {
    return this.#all;
  }

  /** What this hand is still to be asked for. Y1 */
  missingIn(hand: string): readonly SessionResource[] {
    const asked = this.#asked;
    if (asked?.hand !== hand) return this.#all;
    return this.#all.filter(({ id }) => asked.failed.includes(id) && Math.max(this.#changed.get(id) ?? 0, this.#ranAt) > asked.at);
  }

  /** Of this hand, those that it did not get and is not asked for now. */
  failedIn(hand: string): readonly string[] {
    return this.#asked?.hand === hand ? this.#asked.failed : [];
  }

  /** Is this of a repository news? Y2 */
  isNews(id: string, url: string | null, message: string): boolean {
    return url === null || this.#told.get(url) !== message || (this.#changed.get(id) ?? 0) > (this.#asked?.at ?? 0);
  }

  take({ entry, position }: Stored): void {
    if (entry.type === "log.created") this.#all = entry.resources ?? [];
    if (entry.type === "session.status_running") this.#ranAt = position;
    if (entry.type === "session.error" && typeof entry.error.repository_url === "string")
      this.#told.set(entry.error.repository_url, entry.error.message);
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
