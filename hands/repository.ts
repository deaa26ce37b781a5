// Repositories as a hand host is asked for them, and what became of them.

import { z } from "zod";

/** Of a session; the vault proxy keeps as many. */
export const REPOSITORIES_MAX = 50;

export const RepositoryWanted = z.strictObject({
  /** The resource's. */
  id: z.string().regex(/^sesrsc_[0-9A-Za-z]{1,64}$/),
  url: z.string().max(2_048),
  mount_path: z.string().max(1_024),
  checkout: z
    .discriminatedUnion("type", [
      z.strictObject({ type: z.literal("branch"), name: z.string().max(255) }),
      z.strictObject({ type: z.literal("commit"), sha: z.string().max(64) }),
    ])
    .nullable(),
});
export const RepositoriesWanted = z.array(RepositoryWanted).max(REPOSITORIES_MAX);

const ERRORS = [
  "repository_authentication_error",
  "repository_forbidden_error",
  "repository_not_found_error",
  "repository_checkout_error",
  "repository_clone_error",
] as const;
export type RepositoryError = (typeof ERRORS)[number];

export const Prepared = z.discriminatedUnion("type", [
  z.object({ type: z.literal("cloned"), id: z.string() }),
  z.object({ type: z.literal("failed"), id: z.string(), error: z.enum(ERRORS), message: z.string() }),
]);

export const isRepositoryError = (text: string): text is RepositoryError => ERRORS.some((each) => each === text);
