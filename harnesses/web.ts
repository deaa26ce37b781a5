// The web tools as far as they go without a provider: where a call may go is judged by the agent's settings, and what may go is told that nobody can
// carry it out here (contract §9.1).
//
//   N1  They are offered only where the agent's configuration names them: to every other agent they would be tools that always fail.
//   N2  No hand is touched, and nothing leaves this process: a refused address is never looked up.
//   N3  A domain stands for itself and its subdomains. Hosts are compared as URLs are read: lower case, punycode, without a dot at the end.

import { z } from "zod";
import type { AgentSnapshot, WebSettings } from "../session-store/events/log.ts";
import type { ToolDescriptor } from "./harness.ts";

const URL_CHARS_MAX = 2_048;

const text = (description: string) => ({ type: "string", description });
const descriptor = (name: string, description: string, properties: Readonly<Record<string, object>>): ToolDescriptor => ({
  name,
  description,
  input_schema: { type: "object", properties, required: Object.keys(properties), additionalProperties: false },
  isReadOnly: true,
  isIdempotent: true,
  source: "web",
});

/** In the toolset's own order. */
export const WEB_TOOLS: readonly ToolDescriptor[] = [
  descriptor("web_fetch", "Fetches a web page or a document by its address.", { url: text("The http or https address.") }),
  descriptor("web_search", "Searches the web.", { query: text("What to search for.") }),
];

export const isWebTool = (name: string): boolean => WEB_TOOLS.some((tool) => tool.name === name);

const Fetch = z.strictObject({ url: z.string().min(1) });
const Search = z.strictObject({ query: z.string().min(1) });

/** Why the call comes to nothing; it always begins with the error's code. N2 */
export function refuseWeb(agent: AgentSnapshot, { name, input }: { readonly name: string; readonly input: unknown }): string {
  const unavailable = `unavailable: no provider of ${name} is configured on this server.`;
  if (name !== "web_fetch") return Search.safeParse(input).success ? unavailable : "invalid_input: give a query.";
  const read = Fetch.safeParse(input);
  const url = read.success && URL.canParse(read.data.url) ? new URL(read.data.url) : null;
  if (!url || !/^https?:$/.test(url.protocol)) return "invalid_input: give an http or https url.";
  if (url.href.length > URL_CHARS_MAX) return `url_too_long: a url has at most ${URL_CHARS_MAX} characters.`;
  const host = url.hostname.replace(/\.$/, "");
  return mayFetch(settingsOf(agent, name), host) ? unavailable : `url_not_allowed: the agent's settings do not let web_fetch go to ${host}.`;
}

/** N3 */
function mayFetch({ allowed_domains: allowed, blocked_domains: blocked }: WebSettings, host: string): boolean {
  const isOf = (domain: string) => host === domain.toLowerCase() || host.endsWith(`.${domain.toLowerCase()}`);
  return allowed ? allowed.some(isOf) : !blocked?.some(isOf);
}

function settingsOf(agent: AgentSnapshot, name: string): WebSettings {
  const toolset = agent.tools.find((tool) => tool.type === "agent_toolset_20260401");
  return toolset?.configs.find((config) => config.name === name) ?? {};
}
