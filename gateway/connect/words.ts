// What is written after `manyhands vault connect`.

import { parseArgs } from "node:util";

export const CONNECT_USAGE = `usage: manyhands vault connect <mcp-url> [options]

  --vault ID              the vault; without it the only one there is, or a new one
  --scope "A B"           asked for beside what the server asks for; to widen what was granted before
  --client-id ID          a client that you registered at the authorization server
  --client-secret-file F  its secret, in a file
  --port N                the port of http://127.0.0.1:N/callback, where the browser ends; without it any
  --no-browser            only prints the address to open
`;

export interface ConnectWords {
  readonly server: string;
  readonly vault: string | null;
  readonly scope: string | null;
  readonly clientId: string | null;
  readonly clientSecretFile: string | null;
  readonly port: number;
  readonly opensBrowser: boolean;
}

const OPTIONS = {
  vault: { type: "string" },
  scope: { type: "string" },
  "client-id": { type: "string" },
  "client-secret-file": { type: "string" },
  port: { type: "string" },
  "no-browser": { type: "boolean" },
} as const;

/** What is wrong, as text; else what was asked for. */
export function readWords(words: readonly string[]): ConnectWords | string {
  let read: ReturnType<typeof parse>;
  try {
    read = parse(words);
  } catch (error) {
    return error instanceof Error ? (error.message.split("\n")[0] ?? "") : "the options can't be read";
  }
  const { values, positionals } = read;
  const [server = "", ...more] = positionals;
  if (more.length > 0 || !/^https?:/.test(server) || !URL.canParse(server))
    return "vault connect takes the http:// or https:// address of one MCP server";
  const port = Number(values.port ?? 0);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) return "--port takes a number from 0 to 65535";
  if (values["client-secret-file"] !== undefined && values["client-id"] === undefined) return "--client-secret-file needs --client-id";
  return {
    server,
    vault: values.vault ?? null,
    scope: values.scope ?? null,
    clientId: values["client-id"] ?? null,
    clientSecretFile: values["client-secret-file"] ?? null,
    port,
    opensBrowser: values["no-browser"] !== true,
  };
}

const parse = (words: readonly string[]) => parseArgs({ args: [...words], options: OPTIONS, allowPositionals: true, strict: true });
