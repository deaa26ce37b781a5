// `manyhands vault connect`: a person gives an installation access to an MCP server, in their own browser.
//
//   Q1  The code's verifier and the tokens are the vault proxy's alone. What passes here is the code, which is worth nothing without the verifier; it
//       goes from the browser to the gateway and is written nowhere.
//   Q2  Every wait ends: requests by a bound, the browser step with the authorization's own end.

import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { fetch } from "undici";
import { z } from "zod";
import { SettingError } from "../config.ts";
import { type Loopback, openLoopback } from "./loopback.ts";
import type { ConnectWords } from "./words.ts";

/** Longer than the vault proxy takes for a step. */
const ASK_MS = 40_000;
const SAID_CHARS_MAX = 2_000;

const Vault = z.object({ id: z.string(), display_name: z.string() });
const Vaults = z.object({ data: z.array(Vault) });
const Started = z.object({ authorization_url: z.url({ protocol: /^https?$/ }), state: z.string(), expires_at: z.iso.datetime() });
const Connected = z.object({ id: z.string(), vault_id: z.string(), auth: z.object({ expires_at: z.string().nullable(), refresh: z.unknown() }) });
const Refused = z.object({ error: z.object({ message: z.string() }) });

/** Where the API is, and its key. */
export interface Api {
  readonly url: string;
  readonly key: string;
}

/** What can't be done, in words for the terminal. */
class Stopped extends Error {
  override readonly name = "Stopped";
}

/** The exit code. `say` writes a line for the person. */
export async function connect(api: Api, words: ConnectWords, say: (line: string) => void): Promise<number> {
  let loopback: Loopback | null = null;
  try {
    const client = await clientOf(words);
    const vault = words.vault ?? (await vaultOf(api));
    loopback = await listen(words.port);
    const path = `/v1/vaults/${encodeURIComponent(vault)}/connect`;
    const started = await ask(api, path, Started, {
      mcp_server_url: words.server,
      redirect_uri: loopback.redirectUri,
      ...(words.scope === null ? {} : { scope: words.scope }),
      ...(client === null ? {} : { client }),
    });
    say(`Open this address in your browser and allow the access:\n\n  ${started.authorization_url}\n`);
    if (words.opensBrowser) openBrowser(loopback.launchUrl(started.authorization_url));
    const ended = AbortSignal.timeout(Math.max(1, Date.parse(started.expires_at) - Date.now()));
    const { callback, tell } = await loopback.answer(started.state, ended).catch(() => {
      throw new Stopped("Nobody came back from the browser in time. Start again.");
    });
    try {
      const made = await ask(api, `${path}/finish`, Connected, callback);
      tell(true);
      say(`Connected: ${words.server} is credential ${made.id} of vault ${made.vault_id}.`);
      if (made.auth.refresh === null)
        say(`The authorization server gave nothing to renew it with${made.auth.expires_at === null ? "" : `: it ends at ${made.auth.expires_at}`}.`);
    } catch (error) {
      tell(false);
      throw error;
    }
    return 0;
  } catch (error) {
    if (!(error instanceof Stopped)) throw error;
    say(`Not connected. ${error.message}`);
    return 1;
  } finally {
    await loopback?.close();
  }
}

async function clientOf({ clientId, clientSecretFile }: ConnectWords): Promise<{ client_id: string; client_secret?: string } | null> {
  if (clientId === null) return null;
  if (clientSecretFile === null) return { client_id: clientId };
  try {
    return { client_id: clientId, client_secret: (await readFile(clientSecretFile, "utf8")).trim() };
  } catch (error) {
    throw new SettingError(`--client-secret-file can't be read (${codeOf(error)}).`);
  }
}

/** The only vault there is, or a new one. */
async function vaultOf(api: Api): Promise<string> {
  const { data } = await ask(api, "/v1/vaults?limit=2", Vaults);
  const [only, ...more] = data;
  if (more.length > 0) throw new Stopped("There are several vaults: say which one by --vault.");
  return (only ?? (await ask(api, "/v1/vaults", Vault, { display_name: "default" }))).id;
}

async function listen(port: number): Promise<Loopback> {
  try {
    return await openLoopback(port);
  } catch (error) {
    throw new Stopped(`Port ${port} of 127.0.0.1 can't be listened on (${codeOf(error)}): choose another one by --port.`);
  }
}

/** One request; a POST where there is a body. Q2 */
async function ask<T>({ url, key }: Api, path: string, schema: z.ZodType<T>, body?: unknown): Promise<T> {
  let status: number;
  let text: string;
  try {
    const answer = await fetch(`${url}${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { "x-api-key": key, ...(body === undefined ? {} : { "content-type": "application/json" }) },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      redirect: "error",
      signal: AbortSignal.timeout(ASK_MS),
    });
    status = answer.status;
    text = await answer.text();
  } catch (error) {
    throw new Stopped(`The gateway at ${new URL(url).host} can't be asked (${codeOf(error)}): is it running, and at this port (MANYHANDS_PORT)?`);
  }
  const read = jsonOf(text);
  if (status === 200) {
    const found = schema.safeParse(read);
    if (found.success) return found.data;
    throw new Stopped(`What answers at ${new URL(url).host} is no gateway of this version.`);
  }
  const refused = Refused.safeParse(read);
  throw new Stopped(refused.success ? refused.data.error.message.slice(0, SAID_CHARS_MAX) : `The gateway answered with status ${status}.`);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null; // Its status is told instead.
  }
}

function codeOf(error: unknown): string {
  for (let at = error; at instanceof Error; at = at.cause) {
    if ("code" in at && typeof at.code === "string") return at.code;
    if (at.name === "TimeoutError") return "no answer in time";
  }
  return "no answer";
}

const OPENERS: Readonly<Partial<Record<NodeJS.Platform, readonly [string, ...string[]]>>> = {
  darwin: ["open"],
  win32: ["rundll32", "url.dll,FileProtocolHandler"],
};

/** Best effort: the address stands on the screen, too. */
function openBrowser(url: string): void {
  const [command, ...args] = OPENERS[process.platform] ?? ["xdg-open"];
  const child = spawn(command, [...args, url], { stdio: "ignore", detached: true });
  child.on("error", () => {});
  child.unref();
}
