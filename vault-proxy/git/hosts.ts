// Which repositories there can be: those of github.com, and of the git hosts that the operator named (MANYHANDS_GIT_HOSTS).
//
//   H1  A repository's address has one spelling: an origin that is listed, then plain names. What a reader could take for another path (a dot segment,
//       an escape, a query, a user name) is refused before anything is stored.
//   H2  A host that the operator named may be internal, and without TLS if it was named so; github.com is neither.

import { Reach } from "../reach.ts";

const GITHUB = "https://github.com";
const URL_CHARS_MAX = 2_048;
const SEGMENTS_MAX = 10;
const SEGMENT = /^[0-9A-Za-z._~-]{1,100}$/;

export class GitHosts {
  /** For the guard: the hosts of H2. */
  readonly reach: Reach;
  readonly #origins: ReadonlySet<string>;

  /** Origins beside GitHub's. */
  constructor(origins: readonly string[] = []) {
    this.#origins = new Set([GITHUB, ...origins]);
    this.reach = new Reach(origins.map((origin) => new URL(origin).host));
  }

  /** Why this is no repository's address; null: it is one. H1 */
  refuses(text: string): string | null {
    const says = `must be ${[...this.#origins].map((origin) => `${origin}/owner/repo`).join(" or ")}, without .git at its end (other hosts are named by MANYHANDS_GIT_HOSTS)`;
    if (text.length > URL_CHARS_MAX || !URL.canParse(text)) return says;
    const { origin, pathname } = new URL(text);
    const segments = pathname.slice(1).split("/");
    const isPlain = segments.every((segment) => SEGMENT.test(segment) && !/^\.\.?$/.test(segment)) && !pathname.endsWith(".git");
    const isLong = origin === GITHUB ? segments.length === 2 : segments.length <= SEGMENTS_MAX;
    return this.#origins.has(origin) && text === origin + pathname && isPlain && isLong ? null : says;
  }
}

/** Where a hand asks for a repository: its address without the scheme, below a path of ours. */
export const pathOf = (url: string): string => `/git/${url.slice(url.indexOf("//") + 2)}`;

/** An origin as the operator writes it, in its one spelling; null: it is none. */
export function originOf(text: string): string | null {
  const written = text.includes("://") ? text : `https://${text}`;
  if (!URL.canParse(written)) return null;
  const { origin, protocol, href } = new URL(written);
  return (protocol === "https:" || protocol === "http:") && href === `${origin}/` ? origin : null;
}
