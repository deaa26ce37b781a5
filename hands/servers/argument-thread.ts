// The thread that judges arguments (see argument-checks.ts): by a reader that interprets a schema and makes no code of it, and fetches nothing.

import { parentPort } from "node:worker_threads";
import { CfWorkerJsonSchemaValidator } from "@modelcontextprotocol/client/validators/cf-worker";
import type { Asked, Judged } from "./argument-checks.ts";

if (parentPort === null) throw new Error("to be started as a thread");
const port = parentPort;
const validator = new CfWorkerJsonSchemaValidator();

port.on("message", ({ id, schema, input }: Asked) => {
  const said: Judged = { type: "judged", id, wrong: wrongIn(schema, input) };
  port.postMessage(said);
});
port.postMessage({ type: "ready" } satisfies Judged);

function wrongIn(schema: Asked["schema"], input: unknown): string | null {
  try {
    const judged = validator.getValidator(withDefaults(schema))(withoutNulls(schema, input));
    return judged.valid ? null : judged.errorMessage;
  } catch {
    // An unknown dialect, a reference that leads out, a pattern that is none: the server judges by itself.
    return null;
  }
}

/** Null for what may be absent is judged as absent: models write it so. The server gets it as it was given. */
function withoutNulls(schema: Asked["schema"], input: unknown): unknown {
  if (!isObject(input)) return input;
  const required: readonly unknown[] = Array.isArray(schema.required) ? schema.required : [];
  return Object.fromEntries(Object.entries(input).filter(([name, value]) => value !== null || required.includes(name)));
}

/** The schema without demands for what has a default: many servers' schemas are made from what they hold afterwards, and list those as required. */
function withDefaults<T>(node: T): T {
  if (Array.isArray(node)) return node.map(withDefaults) as T;
  if (!isObject(node)) return node;
  const copy: Record<string, unknown> = Object.fromEntries(Object.entries(node).map(([name, inner]) => [name, withDefaults(inner)]));
  const { required, properties } = copy;
  if (Array.isArray(required) && isObject(properties)) copy.required = required.filter((name) => !hasDefault(properties, name));
  return copy as T;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);

function hasDefault(properties: Readonly<Record<string, unknown>>, name: unknown): boolean {
  const property = typeof name === "string" && Object.hasOwn(properties, name) ? properties[name] : undefined;
  return isObject(property) && Object.hasOwn(property, "default");
}
