// Requests made from the OpenAPI document, then bent. They are plain data: which object a request speaks of is a placeholder that the sender
// fills in, so that a seed gives the same requests again.

import fc from "fast-check";
import { arbitraryOf, isSchema } from "../support/json-schema.ts";
import type { Operation, Parameter } from "../support/openapi.ts";
import { change, changedBy, oddText } from "./odd.ts";

export type Kind = "agent" | "environment" | "session" | "event" | "vault" | "credential" | "hand";

/** One request. Texts may hold placeholders `@session:3`: the third newest that the sender knows. */
export interface Asked {
  readonly operation: Operation;
  readonly method: string;
  /** Path and query as they go out, but for placeholders. */
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Buffer | null;
  readonly key: "right" | "wrong" | "none";
  /** The path and the method are those of the operation. */
  readonly isOnTarget: boolean;
}

const chance = (percent: number) => fc.nat(99).map((at) => at < percent);
const often = <T>(usual: fc.Arbitrary<T>, odd: fc.Arbitrary<T>, percent: number): fc.Arbitrary<T> =>
  fc.oneof({ weight: 100 - percent, arbitrary: usual }, { weight: percent, arbitrary: odd });

const RAW = ["%", "%zz", "%00", "%ED%A0%80", "%C0%AF", "+", "%F0%9F%98%80", "[]", "%5B%5D", "&&", "=", "1%2C2"];
const ODD_IDS = [
  "sesn_",
  "agent_",
  "sesn_x",
  "env_0",
  "sesn_%00",
  "..%2f..%2fetc",
  "%2e%2e",
  "%E0%A4%A",
  "sesn_%C3%A9",
  "a%20b",
  "%",
  "",
  "SESN_x",
  "sthr_x",
];

const oddId = fc.oneof(
  fc.constantFrom(...ODD_IDS, `sesn_${"a".repeat(5000)}`),
  fc.string({ maxLength: 20 }).map((text) => encodeURIComponent(text.toWellFormed())),
);

export function requestOf(operations: readonly Operation[]): fc.Arbitrary<Asked> {
  // Sends and creates are where something could be stored by halves: they come more often.
  return fc.oneof(...operations.map((operation) => ({ weight: operation.body ? 4 : 1, arbitrary: ofOne(operation, operations) })));
}

function ofOne(operation: Operation, operations: readonly Operation[]): fc.Arbitrary<Asked> {
  return fc
    .record({
      path: often(fc.constant(null), oddId, 10),
      pick: fc.nat(2),
      query: query(operation),
      method: often(fc.constant(operation.method.toUpperCase()), fc.constantFrom("PUT", "PATCH", "DELETE", "OPTIONS", "GET", "POST"), 2),
      headers: headers(operation),
      body: operation.body ? body(operation) : often(fc.constant(null), fc.constantFrom("", "{}", "[", "null", "x".repeat(70_000)), 10),
      key: fc.oneof(
        { weight: 97, arbitrary: fc.constant("right" as const) },
        { weight: 3, arbitrary: fc.constantFrom("wrong" as const, "none" as const) },
      ),
    })
    .map(({ path, pick, query: search, method, headers: more, body: sent, key }) => {
      const asIs = operation.path.replace(/\{(\w+)\}/g, (_all, name: string) =>
        name === "id" ? `@${kindOf(operation)}:${pick}` : `@${name}:${pick}`,
      );
      const target = path === null ? asIs : asIs.replace(/@\w+:\d/, () => path);
      // Another method may be one that this path has, too.
      const meant = operations.find((each) => each.path === operation.path && each.method.toUpperCase() === method);
      return {
        operation: meant ?? operation,
        method,
        target: `${target}${search}`,
        headers: more,
        body: method === "GET" ? null : sent,
        key,
        isOnTarget: meant !== undefined && target === asIs,
      };
    });
}

const kindOf = ({ path }: Operation): Kind => (path.startsWith("/v1/agents") ? "agent" : path.startsWith("/v1/env") ? "environment" : "session");

/** The part after the path, with its question mark. */
function query({ method, parameters }: Operation): fc.Arbitrary<string> {
  const known = parameters.filter((parameter) => parameter.in === "query" && parameter.name !== "page");
  const odd = fc.tuple(
    fc.oneof(fc.constantFrom("bogus", "limit", "page", "types[]", "__proto__", "constructor", "created_at[gte]"), oddText),
    oddText,
  );
  const written = fc.oneof(
    { weight: 6, arbitrary: fc.oneof(...known.map(pair)) },
    { weight: 1, arbitrary: odd.map(([name, value]) => `${encoded(name)}=${encoded(value)}`) },
    { weight: 1, arbitrary: fc.constantFrom(...RAW) },
    {
      weight: 1,
      arbitrary: fc.constantFrom(
        "page=page_e30",
        "page=page_",
        "page=x",
        `page=page_${"A".repeat(2100)}`,
        "limit=99999999999999999999",
        "limit=1&limit=2",
        "limit=-0",
      ),
    },
  );
  const some = fc.array(written, { minLength: 1, maxLength: 4 }).map((parts) => `?${parts.join("&")}`);
  return often(fc.constant(""), some, method === "get" ? 70 : 4);
}

/** What goes into a query string. A very long one is left to the headers' limit. */
const encoded = (text: string): string => encodeURIComponent(text.slice(0, 3000).toWellFormed());

function pair({ name, schema }: Parameter): fc.Arbitrary<string> {
  const value = often(arbitraryOf(schema), oddText as fc.Arbitrary<unknown>, 15);
  return value.map((given) =>
    [given]
      .flat()
      .map((each) => `${encodeURIComponent(name)}=${encoded(String(each))}`)
      .join("&"),
  );
}

const KEYS = Array.from({ length: 40 }, (_, at) => `key-${at}`);

function headers({ parameters }: Operation): fc.Arbitrary<Record<string, string>> {
  const isHere = (name: string) => parameters.some((each) => each.name === name);
  const odd = fc.constantFrom("x", "-1", "é", "a b", ",".repeat(50), "z".repeat(300), "sesn_x.1", "0");
  const record = fc.record(
    {
      "content-type": fc.constantFrom(
        "text/plain",
        "multipart/form-data",
        "application/json; charset=utf-16",
        "",
        "application/x-www-form-urlencoded",
      ),
      "content-encoding": fc.constantFrom("gzip", "identity", "br, gzip"),
      "anthropic-version": fc.constantFrom("2026-10-21", "2023-06-01", "2020-01-01", "x"),
      "anthropic-beta": fc.constantFrom("managed-agents-2026-04-01", "x,y,,z"),
      "x-stainless-retry-count": fc.constantFrom("0", "1", "2", "x", "-1", "99999"),
      "idempotency-key": isHere("idempotency-key") ? fc.oneof(fc.constantFrom(...KEYS), odd) : odd,
      "last-event-id": isHere("last-event-id") ? fc.oneof(odd, fc.constant("@session:0.1")) : odd,
      accept: fc.constantFrom("text/html", "application/xml;q=0.1", "*/*"),
      "accept-language": odd,
      cookie: odd,
      "x-forwarded-for": odd,
    },
    { requiredKeys: [] },
  );
  return fc.oneof({ weight: 3, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: record.map(fewOf) });
}

/** A request with every odd header is refused for the first of them: a few at a time find more. */
function fewOf(all: Readonly<Record<string, string | undefined>>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(all)
      .flatMap(([name, value]): [string, string][] => (value === undefined ? [] : [[name, value]]))
      .slice(-2),
  );
}

function body(operation: Operation): fc.Arbitrary<string | Buffer | null> {
  const good = arbitraryOf(operation.body ?? {}).map((value) => placed(operation, value));
  const bent = fc.tuple(good, fc.array(change, { minLength: 1, maxLength: 3 })).map(([value, changes]) => changes.reduce<unknown>(changedBy, value));
  const asText = (value: unknown) => JSON.stringify(value) ?? "";
  const cut = fc.tuple(good.map(asText), fc.nat(99)).map(([text, percent]) => text.slice(0, Math.floor((text.length * percent) / 100)));
  return fc.oneof(
    { weight: 40, arbitrary: good.map(asText) },
    { weight: 48, arbitrary: bent.map(asText) },
    { weight: 4, arbitrary: cut },
    { weight: 3, arbitrary: fc.tuple(good.map(asText), chance(50)).map(([text, isBefore]) => (isBefore ? `\ufeff${text}` : `${text}}`)) },
    { weight: 2, arbitrary: good.map((value) => asText(value).replace("{", '{"name":"one","name":"two","__proto__":{},')) },
    {
      weight: 2,
      arbitrary: fc.constantFrom("", "null", "[]", "0", '"x"', '{"a":1e999}', `${"[".repeat(40_000)}`, `${'{"a":'.repeat(500)}1${"}".repeat(500)}`),
    },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes)) },
  );
}

/** Ids in a good body are of things that are there. */
function placed({ id }: Operation, value: unknown): unknown {
  if (!isSchema(value)) return value;
  if (id === "sessions.create")
    return {
      ...value,
      agent: isSchema(value.agent) ? { ...value.agent, id: "@agent:0", version: 1 } : "@agent:0",
      environment_id: "@environment:0",
      vault_ids: value.vault_ids && ["@vault:0"],
      ...(Array.isArray(value.resources) && { resources: value.resources.slice(0, 1).map((each) => ({ ...each, url: "https://github.com/a/b" })) }),
    };
  if (id === "vaults.credentials.create" && isSchema(value.auth) && "mcp_server_url" in value.auth)
    return { ...value, auth: { ...value.auth, mcp_server_url: "https://a.example/@fresh:0" } };
  if (id === "agents.update") return { ...value, version: null };
  return id.startsWith("environments.") && id.endsWith("create") ? { ...value, name: `${String(value.name).slice(0, 20)} @fresh:0` } : value;
}
