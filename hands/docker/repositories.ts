// Cloning a session's repositories inside of its container, by the same way out that every program in there has. No token is in it: the remote is a path
// of the door, and the vault proxy adds what opens it.
//
//   Y1  A clone is made beside its place and moved there whole: a container that dies in the middle leaves none that looks like one. Asked again, what is
//       there already is left as it is.
//   Y2  A clone has a time and its pack a size; what fails is told in one of the contract's words and stops nothing else.

import type { Outcome, Prepared, RepositoryWanted } from "../hand.ts";
import { isRepositoryError } from "../repository.ts";
import type { SandboxCall } from "../sandbox.ts";
import { DOOR_PORT } from "./protocol.ts";

const CLONE_MS = 300_000;
/** Of any one file that a clone writes, so of a pack. */
const FILE_BYTES_MAX = 8 * 1024 ** 3;
const REASON_CHARS_MAX = 400;
/** Who commits, until the agent says otherwise: without a name git refuses to. */
const AUTHOR = "agent@manyhands.invalid";
const TOLD = "manyhands-repository";

/** Where git in a container finds a repository: the door, and below it the address without its scheme. No grant is in it: the door adds that. */
export const remoteOf = (url: string): string => `http://127.0.0.1:${DOOR_PORT}/git/${url.slice(url.indexOf("//") + 2)}`;

/** One after the other. */
export async function cloneAll(
  repositories: readonly RepositoryWanted[],
  run: (call: SandboxCall) => Promise<Outcome>,
): Promise<readonly Prepared[]> {
  const all: Prepared[] = [];
  for (const repository of repositories) {
    const input = { command: scriptOf(repository), timeout_ms: CLONE_MS };
    all.push(preparedOf(repository, await run({ id: `clone:${repository.id}`, tool: "bash", input })));
  }
  return all;
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** Y1 Y2. In a shell of its own: what it sets is not there for the commands that follow. */
function scriptOf({ id, url, mount_path, checkout }: RepositoryWanted): string {
  return `(
at=${quoted(mount_path)} url=${quoted(remoteOf(url))} new=/workspace/.manyhands/${id}
say() { rm -rf "$new"; printf '\\n${TOLD} %s\\n' "$1"; exit 0; }
command -v git >/dev/null || say no-git
export GIT_TERMINAL_PROMPT=0 LC_ALL=C GIT_CONFIG_NOSYSTEM=1
[ "$(git config -f "$at/.git/config" --get remote.origin.url 2>/dev/null)" = "$url" ] && say cloned
[ -e "$at" ] && ! rmdir "$at" 2>/dev/null && say occupied
ulimit -f ${Math.ceil(FILE_BYTES_MAX / 1024)}
rm -rf "$new"; mkdir -p /workspace/.manyhands "$(dirname "$at")" || say failed
git clone --quiet --no-checkout -- "$url" "$new" || say failed
cd "$new" && git config user.name Agent && git config user.email ${AUTHOR} || say failed
${checkoutOf(checkout)} || say checkout
cd / && mv -T "$new" "$at" || say failed
say cloned
) 2>&1 </dev/null`;
}

function checkoutOf(checkout: RepositoryWanted["checkout"]): string {
  if (checkout === null) return "{ ! git rev-parse --quiet --verify HEAD >/dev/null || git reset --quiet --hard; }";
  if (checkout.type === "branch") {
    const { name } = checkout;
    return `git checkout --quiet --force -B ${quoted(name)} --track ${quoted(`refs/remotes/origin/${name}`)}`;
  }
  const sha = quoted(checkout.sha);
  return `{ git cat-file -e ${sha} 2>/dev/null || git fetch --quiet origin ${sha}; } && git checkout --quiet --force --detach ${sha}`;
}

function preparedOf({ id, url, mount_path, checkout }: RepositoryWanted, outcome: Outcome): Prepared {
  const text = outcome.type === "done" ? outcome.content.map((block) => (block.type === "text" ? block.text : "")).join("\n") : outcome.reason;
  const state = new RegExp(`^${TOLD} ([a-z-]+)$`, "m").exec(text)?.[1];
  const failed = (error: Extract<Prepared, { type: "failed" }>["error"], why: string): Prepared => ({
    type: "failed",
    id,
    error,
    message: `The repository ${url} is not in ${mount_path}: ${why}`.toWellFormed(),
  });
  switch (state) {
    case "cloned":
      return { type: "cloned", id };
    case "no-git":
      return failed("repository_clone_error", "the image of the container has no git.");
    case "occupied":
      return failed("repository_clone_error", "something else is there already.");
    case "checkout":
      return failed("repository_checkout_error", `it has no ${checkout?.type ?? "commit"} ${nameOf(checkout)}. ${reasonIn(text)}`.trim());
    default: {
      const told = /\[(repository_[a-z_]+)\]/.exec(text)?.[1] ?? "";
      return failed(isRepositoryError(told) ? told : "repository_clone_error", reasonIn(text) || "it could not be cloned.");
    }
  }
}

function nameOf(checkout: RepositoryWanted["checkout"]): string {
  if (checkout === null) return "that can be checked out";
  return checkout.type === "branch" ? JSON.stringify(checkout.name) : checkout.sha;
}

/** What the vault proxy said, or else git itself. */
function reasonIn(text: string): string {
  const lines = text.split("\n").map((line) => line.trim());
  const ours = lines.find((line) => line.startsWith("remote: manyhands: "))?.slice("remote: manyhands: ".length);
  const gits = lines.find((line) => /^(?:fatal|error): /.test(line)) ?? lines.find((line) => line !== "" && !line.startsWith(TOLD));
  return (ours ?? gits ?? "").replace(/ \[repository_\w+\]$/, "").slice(0, REASON_CHARS_MAX);
}
