// The three kinds of credentials: what is kept of what is given, and shown of what is kept (contract §15).
//
//   A1  What is shown is built field by field from what may be shown: a secret that is added later is not shown by forgetting it here.
//   A2  An archived credential keeps what names it and loses every secret.
//   A3  The type and what names a credential (`mcp_server_url`, `secret_name`, `token_endpoint`, `client_id`) never change.

import type { z } from "zod";
import type { AuthCreate, AuthUpdate, injection, networking, OAuth, ShownAuth, StoredAuth } from "./auth-schema.ts";
import { invalid } from "./refusal.ts";

/** Where a credential may be bound to; refuses what it can't be. `isReachable`: plain HTTP is for hosts that the operator allowed. */
export type UrlRule = (url: URL) => string | null;

export function madeAuth(given: AuthCreate, rule: UrlRule): StoredAuth {
  switch (given.type) {
    case "static_bearer":
      return { ...given, mcp_server_url: boundTo(given.mcp_server_url, "auth.mcp_server_url", rule) };
    case "mcp_oauth": {
      const { refresh } = given;
      return {
        type: "mcp_oauth",
        mcp_server_url: boundTo(given.mcp_server_url, "auth.mcp_server_url", rule),
        access_token: given.access_token,
        expires_at: ahead(given.expires_at) ?? null,
        refresh: refresh
          ? {
              token_endpoint: boundTo(refresh.token_endpoint, "auth.refresh.token_endpoint", rule),
              client_id: refresh.client_id,
              refresh_token: refresh.refresh_token,
              scope: refresh.scope || null,
              resource: refresh.resource ?? null,
              token_endpoint_auth: { client_secret: null, ...refresh.token_endpoint_auth },
            }
          : null,
        ...UNTRIED,
      };
    }
    case "environment_variable":
      return {
        type: "environment_variable",
        secret_name: given.secret_name,
        secret_value: given.secret_value,
        networking: checkedHosts(given.networking),
        injection_location: somewhere(
          given.injection_location
            ? { header: given.injection_location.header ?? false, body: given.injection_location.body ?? false }
            : { header: true, body: true },
        ),
      };
  }
}

/** What is known of tokens that were just given. */
const UNTRIED = { refused: null, forcedAt: null, refreshedAt: null, lease: null } as const;

/** A3. What is absent or null stays as it is. */
export function changedAuth(before: StoredAuth, given: AuthUpdate): StoredAuth {
  if (before.type === "static_bearer" && given.type === "static_bearer") return { ...before, token: given.token ?? before.token };
  if (before.type === "mcp_oauth" && given.type === "mcp_oauth") return changedOAuth(before, given);
  if (before.type === "environment_variable" && given.type === "environment_variable") {
    const { header, body } = given.injection_location ?? {};
    return {
      ...before,
      secret_value: given.secret_value ?? before.secret_value,
      networking: given.networking ? checkedHosts(given.networking) : before.networking,
      injection_location: somewhere({ header: header ?? before.injection_location.header, body: body ?? before.injection_location.body }),
    };
  }
  throw invalid(`auth.type: can't be changed; it is ${before.type}`);
}

function changedOAuth(before: OAuth, given: Extract<AuthUpdate, { type: "mcp_oauth" }>): OAuth {
  const { refresh } = given;
  if (refresh && !before.refresh) throw invalid("auth.refresh: this credential was made without one");
  const endpoint = refresh?.token_endpoint_auth;
  if (endpoint && before.refresh?.token_endpoint_auth.type === "none")
    throw invalid("auth.refresh.token_endpoint_auth: this credential's token endpoint takes no client secret");
  return {
    ...before,
    access_token: given.access_token ?? before.access_token,
    expires_at: ahead(given.expires_at) ?? before.expires_at,
    refresh: before.refresh && {
      ...before.refresh,
      refresh_token: refresh?.refresh_token ?? before.refresh.refresh_token,
      scope: refresh?.scope == null ? before.refresh.scope : refresh.scope || null,
      // The type stays, whichever of the two was sent along.
      token_endpoint_auth: {
        ...before.refresh.token_endpoint_auth,
        client_secret: endpoint?.client_secret ?? before.refresh.token_endpoint_auth.client_secret,
      },
    },
    ...UNTRIED,
  };
}

/** A2 */
export function purgedAuth(auth: StoredAuth): StoredAuth {
  switch (auth.type) {
    case "static_bearer":
      return { ...auth, token: null };
    case "mcp_oauth":
      return {
        ...auth,
        access_token: null,
        lease: null,
        refresh: auth.refresh && {
          ...auth.refresh,
          refresh_token: null,
          token_endpoint_auth: { ...auth.refresh.token_endpoint_auth, client_secret: null },
        },
      };
    case "environment_variable":
      return { ...auth, secret_value: null };
  }
}

/** A1 */
export function shownAuth(auth: StoredAuth): z.infer<typeof ShownAuth> {
  switch (auth.type) {
    case "static_bearer":
      return { type: auth.type, mcp_server_url: auth.mcp_server_url };
    case "mcp_oauth":
      return {
        type: auth.type,
        mcp_server_url: auth.mcp_server_url,
        expires_at: auth.expires_at,
        refresh: auth.refresh && {
          token_endpoint: auth.refresh.token_endpoint,
          client_id: auth.refresh.client_id,
          scope: auth.refresh.scope,
          resource: auth.refresh.resource,
          token_endpoint_auth: { type: auth.refresh.token_endpoint_auth.type },
        },
        needs_sign_in: auth.refused !== null,
      };
    case "environment_variable":
      return { type: auth.type, secret_name: auth.secret_name, networking: auth.networking, injection_location: auth.injection_location };
  }
}

/** What may be there once among a vault's active credentials: a server's address, or a variable's name. */
export function keyOf(auth: StoredAuth): string {
  if (auth.type === "environment_variable") return `name ${auth.secret_name}`;
  const known = keys.get(auth);
  if (known !== undefined) return known;
  const key = keyOfUrl(new URL(auth.mcp_server_url));
  keys.set(auth, key);
  return key;
}

const keys = new WeakMap<StoredAuth, string>();

/** The key of a credential for this server. */
export function keyOfUrl({ origin, pathname, search }: URL): string {
  // Scheme and host are in lower case, the default port is gone.
  return `url ${origin}${pathname.replace(/\/+$/, "")}${search}`;
}

function boundTo(text: string, path: string, rule: UrlRule): string {
  const found = new URL(text);
  const { username, password, hash } = found;
  if (username !== "" || password !== "" || hash !== "") throw invalid(`${path}: must hold neither a user name, nor a password, nor a fragment`);
  const says = rule(found);
  if (says !== null) throw invalid(`${path}: ${says}`);
  return text;
}

function ahead(text: string | null | undefined): string | null {
  if (text == null) return null;
  const at = Date.parse(text);
  if (!(at > Date.now())) throw invalid("auth.expires_at: must be in the future");
  return new Date(at).toISOString();
}

function somewhere(given: z.infer<typeof injection>): z.infer<typeof injection> {
  if (!given.header && !given.body) throw invalid("auth.injection_location: one of `header` and `body` must be true");
  return given;
}

const LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?";
const HOST = new RegExp(`^(?:\\*\\.)?${LABEL}(?:\\.${LABEL})*$`, "i");

/** A bare host, an IPv4 address, or `*.host`. */
function checkedHosts(given: z.infer<typeof networking>): z.infer<typeof networking> {
  if (given.type === "limited")
    for (const [index, each] of given.allowed_hosts.entries())
      if (!HOST.test(each) || /^\*\.[\d.]+$/.test(each))
        throw invalid(`auth.networking.allowed_hosts.${index}: must be a bare host name, an IPv4 address, or \`*.\` and a host name`);
  return given;
}
