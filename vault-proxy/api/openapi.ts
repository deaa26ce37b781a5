// The vaults' part of the API's document, made from the routes. The gateway takes it into its own: paths and named schemas, which refer to the parameters,
// the header and the error that every path there has.

import { z } from "zod";
import { shown } from "./fields.ts";
import { NAMES, type Operation, PATH_IDS, type Route } from "./routes.ts";

type Json = Readonly<Record<string, unknown>>;

export interface OpenApiPart {
  readonly paths: Json;
  readonly schemas: Json;
}

export function openApiPartOf(routes: readonly Route[]): OpenApiPart {
  const operations = routes.flatMap(({ methods }) => Object.values(methods));
  const bodies = new Map(operations.flatMap(({ id, body }): [z.ZodType, string][] => (body ? [[body, nameOf(id)]] : [])));
  const paths = Object.fromEntries(
    routes.map(({ path, methods }) => {
      const parameters = [...path.matchAll(/\{(vault|credential)\}/g)].map(([, name]) => pathParameter(name === "vault" ? "vault" : "credential"));
      return [
        path,
        { parameters, ...Object.fromEntries(Object.entries(methods).map(([method, each]) => [method.toLowerCase(), operationOf(each, bodies)])) },
      ];
    }),
  );
  const schemas = { ...converted("input", bodies), ...converted("output", NAMES) };
  return { paths, schemas };
}

function operationOf({ id, summary, query, body, isCreate, answer }: Operation, bodies: ReadonlyMap<z.ZodType, string>): Json {
  const bodyName = body && bodies.get(body);
  return {
    operationId: id,
    summary,
    parameters: [
      { $ref: "#/components/parameters/beta" },
      { $ref: "#/components/parameters/version" },
      ...queryParameters(alone("input", query)),
      ...(isCreate ? [{ $ref: "#/components/parameters/idempotencyKey" }] : []),
    ],
    ...(bodyName && { requestBody: { required: true, content: { "application/json": { schema: { $ref: refTo(bodyName) } } } } }),
    responses: {
      200: { description: "The answer.", content: { "application/json": { schema: alone("output", answer) } } },
      default: { $ref: "#/components/responses/Error" },
    },
  };
}

const pathParameter = (name: keyof typeof PATH_IDS): Json => ({
  name,
  in: "path",
  required: true,
  schema: alone("input", PATH_IDS[name]),
  description: `The id of the ${name}.`,
});

/** `vaults.credentials.create` → `VaultsCredentialsCreate`. */
const nameOf = (id: string): string => id.replace(/(?:^|\.)(\w)/g, (_all, letter: string) => letter.toUpperCase());
const refTo = (name: string): string => `#/components/schemas/${name}`;

const Shape = z.looseObject({ properties: z.record(z.string(), z.record(z.string(), z.unknown())).default({}) });
function queryParameters(query: Json): readonly Json[] {
  return Object.entries(Shape.parse(query).properties).map(([name, { description, ...schema }]) => ({
    name,
    in: "query",
    schema,
    ...(description !== undefined && { description }),
  }));
}

/** Schemas with a name, each by itself. */
const converted = (io: "input" | "output", names: ReadonlyMap<z.ZodType, string>): Json =>
  Object.fromEntries([...names].map(([schema, name]) => [name, convert(io, schema)]));

/** A schema where it is used: those with a name are referred to. */
function alone(io: "input" | "output", schema: z.ZodType): Json {
  const name = NAMES.get(schema);
  return name === undefined ? convert(io, schema) : { $ref: refTo(name) };
}

const BY_SCHEMA: ReadonlyMap<z.core.$ZodType, string> = new Map(NAMES);
const Plain = z.record(z.string(), z.unknown()).transform(({ $schema: _, ...schema }) => schema);

function convert(io: "input" | "output", schema: z.ZodType): Json {
  return Plain.parse(
    z.toJSONSchema(schema, {
      io,
      unrepresentable: "any",
      override: ({ zodSchema, jsonSchema }) => {
        // What is taken is closed; what is given is open: clients pass over what they do not know.
        if (io === "output" && jsonSchema.additionalProperties === false) delete jsonSchema.additionalProperties;
        const instead = shown.get(zodSchema);
        const inner = zodSchema === (schema as z.core.$ZodType) ? undefined : BY_SCHEMA.get(zodSchema);
        if (!instead && inner === undefined) return;
        for (const word of Object.keys(jsonSchema)) delete jsonSchema[word];
        Object.assign(jsonSchema, instead ?? { $ref: refTo(inner ?? "") });
      },
    }),
  );
}
