// An OpenAPI document as tests read it: its operations, each with what it takes, inlined.

import { z } from "zod";
import type { Schema } from "./json-schema.ts";
import { inlined, isSchema } from "./json-schema.ts";

export interface Parameter {
  readonly name: string;
  readonly in: "query" | "path" | "header";
  readonly schema: Schema;
}

export interface Operation {
  readonly id: string;
  readonly method: "get" | "post" | "delete";
  /** With `{parameters}`. */
  readonly path: string;
  readonly parameters: readonly Parameter[];
  readonly body: Schema | null;
  /** Of a 200; null: it is no JSON. Strict. */
  readonly answer: Schema | null;
  readonly needsKey: boolean;
}

const METHODS = ["get", "post", "delete"] as const;
const Params = z.array(z.record(z.string(), z.unknown())).default([]);
const Param = z.looseObject({ name: z.string(), in: z.enum(["query", "path", "header"]), schema: z.record(z.string(), z.unknown()) });

export function operationsOf(document: Schema): readonly Operation[] {
  const paths = isSchema(document.paths) ? document.paths : {};
  return Object.entries(paths).flatMap(([path, item]) => {
    if (!isSchema(item)) throw new Error(`the document says nothing about ${path}`);
    return METHODS.flatMap((method) => {
      const operation = item[method];
      return isSchema(operation) ? [read(document, path, method, { item, operation })] : [];
    });
  });
}

function read(document: Schema, path: string, method: Operation["method"], { item, operation }: { item: Schema; operation: Schema }): Operation {
  const parameters = [...Params.parse(item.parameters), ...Params.parse(operation.parameters)].map((each) => Param.parse(inlined(document, each)));
  const answer = jsonOf(at(operation.responses, "200"));
  const body = jsonOf(operation.requestBody);
  return {
    id: String(operation.operationId),
    method,
    path,
    parameters,
    body: body && inlined(document, body),
    answer: answer && inlined(document, answer, true),
    needsKey: operation.security === undefined,
  };
}

const at = (value: unknown, name: string): unknown => (isSchema(value) ? value[name] : undefined);

function jsonOf(value: unknown): Schema | null {
  const schema = at(at(at(value, "content"), "application/json"), "schema");
  return isSchema(schema) ? schema : null;
}

/** A path with its parameters filled in. */
export const filled = (path: string, ids: Readonly<Record<string, string>>): string =>
  path.replace(/\{(\w+)\}/g, (_all, name: string) => ids[name] ?? name);
