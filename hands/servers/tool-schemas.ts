// The input schemas of a server's tools as it gave them, and what follows from them for a call.

import { ProtocolError } from "@modelcontextprotocol/client";
import type { RunnerCall } from "../runner.ts";
import type { ArgumentChecks } from "./argument-checks.ts";
import type { Connection, RequestOptions } from "./connection.ts";
import { headersOf } from "./param-headers.ts";

/** The server misses a header that its list, as it is now, asks for; it did not run the call. */
const HEADER_MISMATCH = -32_020;

export class ToolSchemas {
  readonly #checks: ArgumentChecks;
  #schemas = new Map<string, unknown>();

  constructor(checks: ArgumentChecks) {
    this.#checks = checks;
  }

  /** Those of a list that was read anew take the place of all others. */
  replace(schemas: Map<string, unknown>): void {
    this.#schemas = schemas;
  }

  /** What is wrong with a call's arguments; null also where the tool is not known here. */
  wrongIn(tool: string, input: unknown): Promise<string | null> {
    return this.#checks.wrongIn(this.#schemas.get(tool), input);
  }

  /** Sends a call with the headers that its tool asks for; once more, after `readAgain`, where the server wants others than we know of. */
  async send(connection: Connection, { tool, input }: RunnerCall, options: RequestOptions, readAgain: () => Promise<unknown>): Promise<unknown> {
    const params = { name: tool, arguments: input };
    if (!connection.hasHeaders) return await connection.request("tools/call", params, options);
    const send = () => connection.request("tools/call", params, { ...options, headers: headersOf(this.#schemas.get(tool), input) });
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof ProtocolError && error.code === HEADER_MISMATCH)) throw error;
      await readAgain();
      return await send();
    }
  }
}
