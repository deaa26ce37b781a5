// The routes of the vaults' API: each path with its methods, and each method with the schemas by which its requests are read. The API's document is
// made from the same table (openapi.ts).

import { z } from "zod";
import type { UrlRule } from "./auth.ts";
import type { ApiCall } from "./call.ts";
import { ConnectFinish, type ConnectParts, ConnectStart, ConnectStarted, Connects } from "./connect.ts";
import { CredentialCreate, Credentials, CredentialUpdate } from "./credentials.ts";
import { CredentialId, List, VaultId } from "./fields.ts";
import { Credential, Vault } from "./record.ts";
import { Validation, type Validator } from "./validate.ts";
import { VaultCreate, type Vaults, VaultUpdate } from "./vaults.ts";

const NO_QUERY = z.strictObject({});

export interface Operation {
  readonly id: string;
  readonly summary: string;
  readonly query: z.ZodType;
  readonly body: z.ZodType | null;
  /** Takes an idempotency key. */
  readonly isCreate: boolean;
  readonly answer: z.ZodType;
  /** `query` and `body` are what the schemas made of what came; `given` is the body as it came. */
  run(call: ApiCall, read: { readonly query: unknown; readonly body: unknown; readonly given: unknown }): Promise<unknown>;
}

type Method = "GET" | "POST" | "DELETE";

export interface Route {
  /** With `{vault}` and `{credential}`. */
  readonly path: string;
  readonly methods: Readonly<Partial<Record<Method, Operation>>>;
}

export const PATH_IDS = { vault: VaultId, credential: CredentialId } as const;

export const NAMES: ReadonlyMap<z.ZodType, string> = new Map<z.ZodType, string>([
  [Vault, "Vault"],
  [Credential, "VaultCredential"],
]);

interface Spec {
  readonly id: string;
  readonly summary: string;
  readonly answer: z.ZodType;
}

const bare = (spec: Spec, run: (call: ApiCall) => Promise<unknown>): Operation => ({ ...spec, query: NO_QUERY, body: null, isCreate: false, run });

const listing = (spec: Spec, run: (call: ApiCall, query: List) => Promise<unknown>): Operation => ({
  ...spec,
  query: List,
  body: null,
  isCreate: false,
  // Read by this very schema before it comes here.
  run: (call, { query }) => run(call, query as List),
});

function writing<T>(
  spec: Spec & { readonly isCreate?: boolean; readonly body: z.ZodType<T> },
  run: (call: ApiCall, body: T, given: unknown) => Promise<unknown>,
): Operation {
  // Read by this very schema before it comes here.
  return { isCreate: false, ...spec, query: NO_QUERY, run: (call, { body, given }) => run(call, body as T, given) };
}

const pageOf = (item: z.ZodType) =>
  z.strictObject({ data: z.array(item), next_page: z.string().nullable().describe("A cursor for `page`; null: there is no more.") });
const deleted = (type: string) => z.strictObject({ id: z.string(), type: z.literal(type) });

export function routesOf(vaults: Vaults, rule: UrlRule, parts: ConnectParts & { readonly validator: Validator }): readonly Route[] {
  const connects = new Connects(vaults, rule, parts);
  const credentials = new Credentials(vaults, rule);
  const one = "/v1/vaults/{vault}";
  const each = `${one}/credentials/{credential}`;
  const vault = (verb: string, summary: string, answer: z.ZodType = Vault) => ({ id: `vaults.${verb}`, summary, answer });
  const credential = (verb: string, summary: string, answer: z.ZodType = Credential) => ({ id: `vaults.credentials.${verb}`, summary, answer });
  return [
    {
      path: "/v1/vaults",
      methods: {
        POST: writing({ ...vault("create", "Create a vault"), isCreate: true, body: VaultCreate }, (call, body, given) =>
          vaults.create(call, body, given),
        ),
        GET: listing(vault("list", "List vaults, newest first", pageOf(Vault)), (call, query) => vaults.list(call, query)),
      },
    },
    {
      path: one,
      methods: {
        GET: bare(vault("retrieve", "Retrieve a vault"), (call) => vaults.retrieve(call)),
        POST: writing({ ...vault("update", "Update a vault"), body: VaultUpdate }, (call, body) => vaults.update(call, body)),
        DELETE: bare(vault("delete", "Delete a vault with its credentials", deleted("vault_deleted")), (call) => vaults.remove(call)),
      },
    },
    {
      path: `${one}/archive`,
      methods: { POST: bare(vault("archive", "Archive a vault and its credentials; their secrets are purged"), (call) => vaults.archive(call)) },
    },
    {
      path: `${one}/credentials`,
      methods: {
        POST: writing(
          { ...credential("create", "Create a credential; its secrets are never shown again"), isCreate: true, body: CredentialCreate },
          (call, body, given) => credentials.create(call, body, given),
        ),
        GET: listing(credential("list", "List a vault's credentials, newest first", pageOf(Credential)), (call, query) =>
          credentials.list(call, query),
        ),
      },
    },
    {
      path: `${one}/connect`,
      methods: {
        POST: writing(
          { ...vault("connect.start", "Begin the authorization of a person for an MCP server", ConnectStarted), body: ConnectStart },
          (call, body) => connects.start(call, body),
        ),
      },
    },
    {
      path: `${one}/connect/finish`,
      methods: {
        POST: writing(
          {
            ...vault("connect.finish", "End an authorization with what its redirect brought: the tokens become a credential", Credential),
            body: ConnectFinish,
          },
          (call, body) => connects.finish(call, body),
        ),
      },
    },
    {
      path: each,
      methods: {
        GET: bare(credential("retrieve", "Retrieve a credential"), (call) => credentials.retrieve(call)),
        POST: writing({ ...credential("update", "Update a credential; what names it stays"), body: CredentialUpdate }, (call, body) =>
          credentials.update(call, body),
        ),
        DELETE: bare(credential("delete", "Delete a credential", deleted("vault_credential_deleted")), (call) => credentials.remove(call)),
      },
    },
    {
      path: `${each}/mcp_oauth_validate`,
      methods: {
        POST: bare(
          credential("mcp_oauth_validate", "Ask the server whether the credential is good; renews its tokens where it must", Validation),
          (call) => parts.validator.validate(call),
        ),
      },
    },
    {
      path: `${each}/archive`,
      methods: { POST: bare(credential("archive", "Archive a credential: its secrets are purged"), (call) => credentials.archive(call)) },
    },
  ];
}
