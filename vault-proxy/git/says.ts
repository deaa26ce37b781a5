// What git in a hand is told when it is not let through, or the host does not let it: plain text, which git shows as `remote: …`. The word in brackets is
// the session error that a failed clone becomes.

import type { ServerResponse } from "node:http";

const AUTHENTICATION = "repository_authentication_error";
const FORBIDDEN = "repository_forbidden_error";
const NOT_FOUND = "repository_not_found_error";
const CLONE = "repository_clone_error";

const SAYS = {
  not_ours: { status: 404, error: NOT_FOUND, says: "this is no repository of the session, or nothing that git asks of one" },
  // No 401: git would ask for a user name, and nobody in a hand has one.
  token_refused: { status: 403, error: AUTHENTICATION, says: "the repository's host does not take its token" },
  token_missing: { status: 403, error: AUTHENTICATION, says: "the repository's host wants a token, and the session has none for it" },
  forbidden: { status: 403, error: FORBIDDEN, says: "the repository's host does not allow it" },
  not_found: { status: 404, error: NOT_FOUND, says: "the repository's host knows no such repository, or none that the token may see" },
  host_failed: { status: 502, error: CLONE, says: "the repository's host answered with an error" },
  no_git: { status: 502, error: CLONE, says: "the repository's host does not answer as a git server does" },
  redirects: { status: 502, error: CLONE, says: "the repository's host redirects to another place, which is not followed" },
  moved: { status: 502, error: CLONE, says: "the repository has moved; try again" },
  refused: { status: 502, error: CLONE, says: "the repository's host is at an address that is not spoken to" },
  unreachable: { status: 502, error: CLONE, says: "the repository's host can't be reached" },
  silent: { status: 504, error: CLONE, says: "the repository's host did not answer in time" },
  too_large: { status: 413, error: CLONE, says: "it is more than may pass" },
  encoded: { status: 415, error: CLONE, says: "a request in this encoding is not passed on" },
  no_vault: { status: 503, error: CLONE, says: "the session's tokens can't be read now" },
  no_audit: { status: 503, error: CLONE, says: "the use of a token can't be written to the audit, and so it does not happen" },
  ended: { status: 503, error: CLONE, says: "the session's grant has ended, or is not for git" },
} as const;

export type GitDeniedCode = keyof typeof SAYS;

export class GitDenied extends Error {
  override readonly name = "GitDenied";
  readonly code: GitDeniedCode;
  /** A status, the system's code, or the host's own words, masked. */
  readonly detail: string;

  constructor(code: GitDeniedCode, detail = "") {
    super(SAYS[code].says);
    this.code = code;
    this.detail = detail;
  }
}

/** An answer that has begun is cut, so that it can't be taken for whole. */
export function denyGit(res: ServerResponse, { code, message, detail }: GitDenied): void {
  if (res.headersSent) {
    res.destroy();
    return;
  }
  const { status, error } = SAYS[code];
  const body = `manyhands: ${message}${detail === "" ? "" : ` (${detail})`} [${error}]\n`;
  res.writeHead(status, {
    "content-type": "text/plain",
    "content-length": Buffer.byteLength(body),
    "cache-control": "no-store",
    connection: "close",
  });
  res.end(body);
}
