// The settings of the web tools (contract §9.1): where they may go, and how they are resolved.
//
//   W1  A domain is a plain host name and stands for its subdomains too. A list is absent (or null), or has 1 to DOMAINS_MAX different names;
//       allowed and blocked exclude each other.
//   W2  Only a search takes a path behind a name: `docs.example.com/guide`.

import { z } from "zod";

const DOMAINS_MAX = 64;
const DOMAIN_CHARS_MAX = 255;
const HOST_CHARS_MAX = 253;
const PLACE_CHARS_MAX = 255;

const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
/** Names that mean this machine or its own network, whatever stands before them. */
const LOCAL = new Set(["localhost", "localdomain", "local", "internal", "lan", "home", "intranet"]);
/** A path: visible ASCII without what would begin a query or a fragment, or stand for several paths. */
const PATH = /^\/[!-~]*$/;
const NOT_IN_PATH = /[?#*\\]/;

/** What is wrong with a host name; null: nothing. */
function troubleOfHost(host: string): string | null {
  if (host.includes("*")) return "must not hold a wildcard";
  if (/^[\w+.-]+:\/\//.test(host) || host.includes(":")) return "must be a plain host name, without scheme and port";
  const labels = host.toLowerCase().split(".");
  const last = labels.at(-1) ?? "";
  if (host.length > HOST_CHARS_MAX || !labels.every((label) => LABEL.test(label))) return "must be a plain host name";
  if (/^(\d+|0x[0-9a-f]*)$/.test(last)) return "must not be an IP address";
  if (LOCAL.has(last) || host.toLowerCase().endsWith(".home.arpa")) return "must not be a local name";
  return labels.length < 2 ? "must not be a bare suffix" : null;
}

function troubleOfDomain(text: string, takesPath: boolean): string | null {
  const slash = /^[\w+.-]+:\/\//.test(text) ? -1 : text.indexOf("/");
  if (slash < 0) return troubleOfHost(text);
  if (!takesPath) return "must not hold a path";
  const path = text.slice(slash);
  if (!PATH.test(path) || NOT_IN_PATH.test(path)) return "must hold a plain path, or none";
  return troubleOfHost(text.slice(0, slash));
}

/** W1 */
function domains(takesPath: boolean) {
  const domain = z
    .string()
    .min(1)
    .max(DOMAIN_CHARS_MAX)
    .superRefine((text, context) => {
      const trouble = troubleOfDomain(text, takesPath);
      if (trouble !== null) context.addIssue({ code: "custom", message: trouble });
    });
  return z
    .array(domain)
    .min(1)
    .max(DOMAINS_MAX)
    .superRefine((given, context) => {
      const names = new Set<string>();
      for (const [index, text] of given.entries()) {
        const name = nameOf(text);
        if (names.has(name)) context.addIssue({ code: "custom", path: [index], message: "is given twice" });
        names.add(name);
      }
    })
    .nullish();
}

/** Host names know no case; paths do. */
function nameOf(text: string): string {
  const slash = text.indexOf("/");
  return slash < 0 ? text.toLowerCase() : text.slice(0, slash).toLowerCase() + text.slice(slash);
}

interface DomainLists {
  readonly allowed_domains?: readonly string[] | null | undefined;
  readonly blocked_domains?: readonly string[] | null | undefined;
}

/** W1 */
export function refuseBoth({ allowed_domains, blocked_domains }: DomainLists, context: z.RefinementCtx): void {
  if (allowed_domains != null && blocked_domains != null)
    context.addIssue({ code: "custom", path: ["blocked_domains"], message: "can't be combined with allowed_domains" });
}

const place = z.string().min(1).max(PLACE_CHARS_MAX).nullish();

const UserLocation = z.strictObject({
  type: z.literal("approximate"),
  city: place,
  region: place,
  country: z
    .string()
    .regex(/^[A-Z]{2}$/, "must be two capital letters (ISO 3166-1)")
    .nullish(),
  timezone: z.string().min(1).max(PLACE_CHARS_MAX).refine(isTimeZone, "must be an IANA time zone").nullish(),
});

function isTimeZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat("en", { timeZone: name }).resolvedOptions().timeZone !== "" && /^[A-Za-z]/.test(name);
  } catch (error) {
    if (error instanceof RangeError) return false;
    throw error;
  }
}

export const fetchSettings = {
  allowed_domains: domains(false),
  blocked_domains: domains(false),
  max_content_tokens: z.int().min(1).nullish(),
};

/** W2 */
export const searchSettings = { allowed_domains: domains(true), blocked_domains: domains(true), user_location: UserLocation.nullish() };

interface Given extends DomainLists {
  readonly name: string;
  readonly max_content_tokens?: number | null | undefined;
  readonly user_location?: z.infer<typeof UserLocation> | null | undefined;
}

/** The settings as they are kept and shown: what is nullable is there, a list only where it is given. */
export function resolvedWeb(config: Given): object {
  const { allowed_domains, blocked_domains, max_content_tokens = null, user_location } = config;
  const lists = { ...(allowed_domains && { allowed_domains }), ...(blocked_domains && { blocked_domains }) };
  if (config.name === "web_fetch") return { ...lists, max_content_tokens, url_sources: null };
  if (config.name !== "web_search") return {};
  if (!user_location) return { ...lists, user_location: null };
  const { type, city = null, region = null, country = null, timezone = null } = user_location;
  return { ...lists, user_location: { type, city, region, country, timezone } };
}
