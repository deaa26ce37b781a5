// The shapes of the three kinds of credentials: as they are given, kept and shown (contract §15).

import { z } from "zod";
import { instant, time } from "./fields.ts";

const SECRET_CHARS_MAX = 16_384;
const URL_CHARS_MAX = 2_048;
const HOSTS_MAX = 16;

/** Goes into a header: visible ASCII without spaces. */
const headerSecret = z
  .string()
  .max(SECRET_CHARS_MAX)
  .regex(/^[!-~]+$/);
const secret = z.string().min(1).max(SECRET_CHARS_MAX);
export const serverUrl = z.url({ protocol: /^https?$/ }).max(URL_CHARS_MAX);
const scope = z.string().max(4_096);
const name = z.string().min(1).max(URL_CHARS_MAX);

const host = z.string().min(1).max(253);
export const networking = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("unrestricted") }),
  z.strictObject({ type: z.literal("limited"), allowed_hosts: z.array(host).max(HOSTS_MAX) }),
]);
const location = z.strictObject({ header: z.boolean().nullish(), body: z.boolean().nullish() });

export const AuthCreate = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("static_bearer"), mcp_server_url: serverUrl, token: headerSecret }),
  z.strictObject({
    type: z.literal("mcp_oauth"),
    mcp_server_url: serverUrl,
    access_token: headerSecret,
    expires_at: instant.nullish(),
    refresh: z
      .strictObject({
        token_endpoint: serverUrl,
        client_id: name,
        refresh_token: secret,
        scope: scope.nullish(),
        resource: name.nullish(),
        token_endpoint_auth: z.discriminatedUnion("type", [
          z.strictObject({ type: z.literal("none") }),
          z.strictObject({ type: z.literal("client_secret_basic"), client_secret: secret }),
          z.strictObject({ type: z.literal("client_secret_post"), client_secret: secret }),
        ]),
      })
      .nullish(),
  }),
  z.strictObject({
    type: z.literal("environment_variable"),
    secret_name: z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,254}$/),
    secret_value: secret,
    networking,
    injection_location: location.nullish(),
  }),
]);
export type AuthCreate = z.infer<typeof AuthCreate>;

export const AuthUpdate = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("static_bearer"), token: headerSecret.nullish() }),
  z.strictObject({
    type: z.literal("mcp_oauth"),
    access_token: headerSecret.nullish(),
    expires_at: instant.nullish(),
    refresh: z
      .strictObject({
        refresh_token: secret.nullish(),
        scope: scope.nullish(),
        token_endpoint_auth: z
          .discriminatedUnion("type", [
            z.strictObject({ type: z.literal("client_secret_basic"), client_secret: secret.nullish() }),
            z.strictObject({ type: z.literal("client_secret_post"), client_secret: secret.nullish() }),
          ])
          .nullish(),
      })
      .nullish(),
  }),
  z.strictObject({
    type: z.literal("environment_variable"),
    secret_value: secret.nullish(),
    networking: networking.nullish(),
    injection_location: location.nullish(),
  }),
]);
export type AuthUpdate = z.infer<typeof AuthUpdate>;

const keptSecret = z.string().nullable();
export const injection = z.strictObject({ header: z.boolean(), body: z.boolean() });
const endpointAuth = ["none", "client_secret_basic", "client_secret_post"] as const;

export const StoredAuth = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("static_bearer"), mcp_server_url: z.string(), token: keptSecret }),
  z.strictObject({
    type: z.literal("mcp_oauth"),
    mcp_server_url: z.string(),
    access_token: keptSecret,
    expires_at: z.string().nullable(),
    refresh: z
      .strictObject({
        token_endpoint: z.string(),
        client_id: z.string(),
        refresh_token: keptSecret,
        scope: z.string().nullable(),
        resource: z.string().nullable(),
        token_endpoint_auth: z.strictObject({ type: z.enum(endpointAuth), client_secret: keptSecret }),
      })
      .nullable(),
    /** Why the authorization server refused a refresh: nobody asks it again until the credential was changed. */
    refused: z.string().nullable(),
    /** When a refresh was last asked for without need of the clock: a server that answers 401 to everything is not worth a refresh each time. */
    forcedAt: z.number().nullable(),
    /** When the tokens were last refreshed: how long they live is told by it and by `expires_at`. */
    refreshedAt: z.number().nullable().default(null),
    /** Who asks for new tokens right now, and for how long nobody else does; see oauth/refresh.ts. */
    lease: z.strictObject({ by: z.string(), id: z.string(), ms: z.number(), until: z.number() }).nullable().default(null),
  }),
  z.strictObject({
    type: z.literal("environment_variable"),
    secret_name: z.string(),
    secret_value: keptSecret,
    networking,
    injection_location: injection,
  }),
]);
export type StoredAuth = z.infer<typeof StoredAuth>;
export type OAuth = Extract<StoredAuth, { type: "mcp_oauth" }>;

export const ShownAuth = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("static_bearer"), mcp_server_url: z.string() }),
  z.strictObject({
    type: z.literal("mcp_oauth"),
    mcp_server_url: z.string(),
    expires_at: time.nullable(),
    refresh: z
      .strictObject({
        token_endpoint: z.string(),
        client_id: z.string(),
        scope: z.string().nullable(),
        resource: z.string().nullable(),
        token_endpoint_auth: z.strictObject({ type: z.enum(endpointAuth) }),
      })
      .nullable(),
    needs_sign_in: z.boolean().describe("The authorization server refused to renew the tokens: nobody asks it again until new ones are stored."),
  }),
  z.strictObject({ type: z.literal("environment_variable"), secret_name: z.string(), networking, injection_location: injection }),
]);
