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
    const judged = validator.getValidator(schema)(input);
    return judged.valid ? null : judged.errorMessage;
  } catch {
    // An unknown dialect, a reference that leads out, a pattern that is none: the server judges by itself.
    return null;
  }
}
