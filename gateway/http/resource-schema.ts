// The resources of a session on the wire (contract §14): repositories. Files and memory stores are refused by name.

import { z } from "zod";
import { REPOSITORIES_MAX } from "../../hands/repository.ts";
import { limit, page } from "./query.ts";
import { shownAs } from "./shown.ts";

const URL_CHARS_MAX = 2_048;
const PATH_CHARS_MAX = 1_024;
const BRANCH_CHARS_MAX = 255;
const WORKSPACE = "/workspace";
const LIST_MAX = 1_000;
/** Of a token as clients write it. */
const TOKEN_CHARS_MAX = 1_024;

/** What git itself takes for a branch, and nothing that a program could take for an option. */
const isBranch = (text: string): boolean =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused.
  !/[\x00-\x20\x7f~^:?*[\\]|\.\.|@\{|\/\/|(^|\/)\.|\.(\/|$)|\.lock(\/|$)|^[-/]|\/$/.test(text) && text !== "@";

/** A folder below the workspace: nothing else of a hand can be written and stays. */
const isMountPath = (text: string): boolean =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused.
  /^\/workspace(\/[^/\x00-\x1f\x7f]{1,255})+$/.test(text) && !/\/\.{1,2}(\/|$)/.test(text) && !/^\/workspace\/\.manyhands(\/|$)/.test(text);

/** As `seal` gives it back; anything else never came through there. */
const Sealed = shownAs(z.string().regex(/^sealed_[0-9A-Za-z_-]{1,2000}$/, "can't be taken: this installation has no vault proxy"), {
  type: "string",
  minLength: 1,
  maxLength: TOKEN_CHARS_MAX,
  pattern: "^[!-~]+$",
  writeOnly: true,
});

const Checkout = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("branch"), name: z.string().min(1).max(BRANCH_CHARS_MAX).refine(isBranch, "is no name of a branch") }),
  z.strictObject({ type: z.literal("commit"), sha: z.string().regex(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/i, "must be a full commit SHA") }),
]);

const Repository = z.strictObject({
  type: z.literal("github_repository"),
  url: z
    .string()
    .max(URL_CHARS_MAX)
    .regex(/^https?:\/\/[^\s/@?#]+(?:\/[0-9A-Za-z._~-]{1,100})+$/, "must be https://github.com/owner/repo"),
  authorization_token: Sealed.nullish(),
  checkout: Checkout.nullish(),
  mount_path: z.string().max(PATH_CHARS_MAX).refine(isMountPath, `must be a folder below ${WORKSPACE}, without dot segments`).nullish(),
});
export type RepositoryWanted = z.infer<typeof Repository>;

const onlyRepositories = "only `github_repository` resources are supported";

export const Resources = z
  .array(z.discriminatedUnion("type", [Repository], { error: onlyRepositories }))
  .max(REPOSITORIES_MAX, `at most ${REPOSITORIES_MAX} repositories`)
  .check(({ value, issues }) => {
    const [urls, paths]: [Set<string>, string[]] = [new Set(), []];
    for (const [index, each] of value.entries()) {
      const path = mountOf(each);
      const refuse = (field: string, message: string) => issues.push({ code: "custom", input: each, path: [index, field], message });
      if (urls.has(each.url)) refuse("url", "names a repository that is there already");
      if (paths.some((other) => `${other}/`.startsWith(`${path}/`) || `${path}/`.startsWith(`${other}/`)))
        refuse("mount_path", "lies in the folder of another repository, or holds it");
      urls.add(each.url);
      paths.push(path);
    }
  });

export const mountOf = ({ url, mount_path }: RepositoryWanted): string => mount_path ?? `${WORKSPACE}/${url.slice(url.lastIndexOf("/") + 1)}`;

/** Anything that could be meant as one: none can be added later. */
export const ResourceAdd = z.looseObject({ type: z.string().max(100) });
export const ResourceUpdate = z.strictObject({ authorization_token: Sealed });
export const ResourceList = z.strictObject({ limit: limit(LIST_MAX, LIST_MAX), page });
export type ResourceList = z.infer<typeof ResourceList>;
