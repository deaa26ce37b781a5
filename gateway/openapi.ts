// The OpenAPI 3.1 document of this server, made from the routes and the schemas that they read requests by.

import { z } from "zod";
import { ErrorEnvelope } from "./answer.ts";
import { API_VERSIONS } from "./authenticate.ts";
import { EVENT_STREAM, named } from "./http/answer-schema.ts";
import type { PathIds } from "./http/path-id.ts";
import { PATH_IDS } from "./http/path-id.ts";
import type { HeaderName, Operation, Route } from "./http/route.ts";
import { shown } from "./http/shown.ts";
import { KEY_PATTERN } from "./idempotency.ts";
import type { OpenApiPart } from "./vault-proxy.ts";
import { version } from "./version.ts";

type Json = Readonly<Record<string, unknown>>;

/** A path that needs no key and takes nothing. */
export interface OpenPath {
  readonly path: string;
  readonly summary: string;
  readonly answer: z.ZodType;
}

const HEADERS: Readonly<Record<HeaderName, { readonly schema: Json; readonly description: string }>> = {
  "idempotency-key": {
    schema: { type: "string", pattern: KEY_PATTERN.source },
    description: "The same key with the same body is answered with what the first request made; with another body it is refused (409).",
  },
  "last-event-id": {
    schema: { type: "string" },
    description: "The `id` of the last frame that was seen: the stream goes on after it.",
  },
};

/** Schemas as JSON Schema: by themselves, or as a reference where they have a name. */
type Show = (schema: z.ZodType) => Json;

/** `part`: paths and schemas that another program answers for, as they stand here. */
export function openApiOf(routes: readonly Route[], open: readonly OpenPath[], part?: OpenApiPart): Json {
  const operations = routes.flatMap(({ methods }) => Object.values(methods));
  const bodies = new Map(operations.flatMap(({ id, body }): [z.ZodType, string][] => (body ? [[body, bodyName(id)]] : [])));
  const taken = converted("input", bodies, [...operations.map(({ query }) => query), ...Object.values(PATH_IDS).map(({ schema }) => schema)]);
  const answers = [...operations, ...open].flatMap(({ answer }) => (answer === EVENT_STREAM ? [] : [answer]));
  const given = converted("output", new Map([...named, [ErrorEnvelope, "Error"]]), answers);

  const paths: Record<string, Json> = {};
  for (const { path, summary, answer } of open) {
    const responses = { 200: jsonContent("The answer.", given.show(answer)), default: { $ref: "#/components/responses/Error" } };
    paths[path] = { get: { operationId: path.slice(1), summary, security: [], responses } };
  }
  for (const { path, ids, methods } of routes) {
    const item: Record<string, unknown> = { parameters: pathParameters(ids, taken.show) };
    for (const [method, operation] of Object.entries(methods)) item[method] = operationOf(operation, taken.show, given.show);
    paths[path.replace(/:(\w+)/g, "{$1}")] = item;
  }
  return {
    openapi: "3.1.1",
    info: {
      title: "Manyhands",
      version: version(),
      description: "Durable sessions for agents, compatible with the Claude Managed Agents API.",
    },
    security: [{ bearer: [] }, { apiKey: [] }],
    paths: { ...paths, ...part?.paths },
    components: {
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer" },
        apiKey: { type: "apiKey", in: "header", name: "x-api-key" },
      },
      parameters: {
        beta: { name: "beta", in: "query", schema: { type: "string" }, description: "Taken on every path, and without a meaning." },
        idempotencyKey: { name: "idempotency-key", in: "header", ...HEADERS["idempotency-key"] },
        version: { name: "anthropic-version", in: "header", schema: { type: "string", enum: [...API_VERSIONS] } },
      },
      responses: { Error: jsonContent("What went wrong.", { $ref: "#/components/schemas/Error" }) },
      schemas: { ...taken.components, ...given.components, ...part?.schemas },
    },
  };
}

function operationOf({ id, summary, query, body, headers, answer }: Operation, showTaken: Show, showGiven: Show): Json {
  return {
    operationId: id,
    summary,
    parameters: [
      { $ref: "#/components/parameters/beta" },
      { $ref: "#/components/parameters/version" },
      ...queryParameters(showTaken(query)),
      ...headers.map((name) => ({ name, in: "header", ...HEADERS[name] })),
    ],
    ...(body && { requestBody: { required: true, content: { "application/json": { schema: showTaken(body) } } } }),
    responses: {
      200: answer === EVENT_STREAM ? STREAM : jsonContent("The answer.", showGiven(answer)),
      default: { $ref: "#/components/responses/Error" },
    },
  };
}

const STREAM: Json = {
  description: "Server-sent events: `event` is the type, `data` one of these as JSON, `id` a place to resume from. There is no end mark.",
  content: { "text/event-stream": { schema: { $ref: "#/components/schemas/StreamedEvent" } } },
};

const jsonContent = (description: string, schema: Json): Json => ({ description, content: { "application/json": { schema } } });

/** `sessions.events.send` → `SessionsEventsSend`. */
const bodyName = (id: string): string => id.replace(/(?:^|\.)(\w)/g, (_all, letter: string) => letter.toUpperCase());

function pathParameters(ids: PathIds, show: Show): readonly Json[] {
  return Object.entries(ids).map(([name, kind]) => ({
    name,
    in: "path",
    required: true,
    schema: show(PATH_IDS[kind].schema),
    description: `The id of the ${kind}.`,
  }));
}

const Shape = z.looseObject({ properties: z.record(z.string(), z.record(z.string(), z.unknown())).default({}) });

/** Lists go out in the bracket form, as the SDKs send them. */
function queryParameters(query: Json): readonly Json[] {
  return Object.entries(Shape.parse(query).properties).map(([name, { description, ...schema }]) => ({
    in: "query",
    ...(schema.type === "array" ? { name: `${name}[]`, style: "form", explode: true } : { name }),
    schema,
    ...(description !== undefined && { description }),
  }));
}

/** Converts schemas at once. Those with a name become components; the others stand where they are used. */
function converted(io: "input" | "output", names: ReadonlyMap<z.ZodType, string>, others: readonly z.ZodType[]): { components: Json; show: Show } {
  const registry = z.registry<{ id: string }>();
  const idOf = new Map(names);
  for (const schema of others) if (!idOf.has(schema)) idOf.set(schema, `.${idOf.size}`);
  for (const [schema, id] of idOf) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, { io, uri: refTo, unrepresentable: "any", override: (context) => rewrite(context, io) });
  const ready = new Map(Object.entries(schemas).map(([id, schema]) => [id, Schema.parse(schema)]));
  return {
    components: Object.fromEntries([...names.values()].map((id) => [id, ready.get(id)])),
    show: (schema) => {
      const id = idOf.get(schema);
      const found = id === undefined ? undefined : ready.get(id);
      if (id === undefined || !found) throw new Error("a schema is shown that was not converted");
      return names.has(schema) ? { $ref: refTo(id) } : found;
    },
  };
}

const refTo = (id: string): string => `#/components/schemas/${id}`;
const Schema = z.record(z.string(), z.unknown()).transform(({ $schema: _, $id: __, ...schema }) => schema);

const isNever = (form: z.core.JSONSchema.BaseSchema): boolean => typeof form.not === "object" && Object.keys(form.not).length === 0;

/** What is taken is closed: an unknown field is refused. What is given is open: clients pass over what they do not know. */
function rewrite({ zodSchema, jsonSchema }: { zodSchema: z.core.$ZodTypes; jsonSchema: z.core.JSONSchema.BaseSchema }, io: "input" | "output"): void {
  if (io === "output" && jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties;
  if (jsonSchema.oneOf) jsonSchema.oneOf = jsonSchema.oneOf.filter((form) => !isNever(form));
  const instead = shown.get(zodSchema);
  if (!instead) return;
  for (const word of Object.keys(jsonSchema)) delete jsonSchema[word];
  Object.assign(jsonSchema, instead);
}
