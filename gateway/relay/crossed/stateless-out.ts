// The answer to one request of the stateless era: JSON when nothing comes before it, a stream otherwise. Here what a hand of the other era says becomes
// what this era says.
//
//   O1  A result says what kind it is and who gave it; what may be kept, is for this caller alone and not for long.
//       What fails after the stream began is told in it.
//   O2  Progress goes out under the client's own token, logs from the level that the client asked for. Without a token or a level they do not.

import type { ServerResponse } from "node:http";
import { sendJson } from "../../http/call.ts";
import { INVALID_PARAMS, METHOD_NOT_FOUND, type RpcId } from "../../mcp/rpc.ts";
import { SseResponse } from "../../mcp/sse.ts";
import { tellsFailure } from "../early.ts";
import { SERVER_INFO, shownTools } from "./crossed.ts";
import { type Incoming, metaOf, type Params, recordOf } from "./incoming.ts";
import { LOG_LEVEL } from "./stateless-hand.ts";

const STREAM_AFTER_MS = 1_000;
const LACKS_CAPABILITY = -32_021;
const RESOURCE_NOT_FOUND = -32_002;
const CACHED = new Set(["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover"]);
const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

export interface Asked {
  readonly id: RpcId;
  readonly method: string;
  readonly params: Params;
}

export class StatelessOut {
  readonly #response: ServerResponse;
  readonly #keepAliveMs: number;
  readonly #asked: Asked;
  readonly #timer: NodeJS.Timeout;
  #sse: SseResponse | null = null;

  constructor(response: ServerResponse, keepAliveMs: number, asked: Asked) {
    this.#response = response;
    this.#keepAliveMs = keepAliveMs;
    this.#asked = asked;
    this.#timer = setTimeout(() => this.#stream(), STREAM_AFTER_MS).unref();
    response.once("close", () => clearTimeout(this.#timer));
  }

  get level(): string | null {
    const level = metaOf(this.#asked.params)[LOG_LEVEL];
    return typeof level === "string" && LEVELS.includes(level) ? level : null;
  }

  /** O2 */
  async notice(message: Incoming): Promise<void> {
    const { method } = message;
    const params = recordOf(message.params);
    if (method === "notifications/progress") {
      const { progressToken } = metaOf(this.#asked.params);
      if (progressToken !== undefined) await this.send({ ...message, params: { ...params, progressToken } });
    } else if (method === "notifications/message") {
      if (this.level !== null && LEVELS.indexOf(String(params.level)) >= LEVELS.indexOf(this.level)) await this.send(message);
    } else await this.send(message);
  }

  /** The answer of the hand. `lacking`: what it wanted and this client can't give. */
  async answer(
    { result, error }: Incoming,
    options: { readonly serverInfo: unknown; readonly lacking: Params | null; refused(tool: string): string | null },
  ): Promise<void> {
    const { method } = this.#asked;
    if (error !== undefined) {
      const given = recordOf(error);
      if (options.lacking)
        return this.error(
          { code: LACKS_CAPABILITY, message: "The hand needs what this client did not declare.", data: { requiredCapabilities: options.lacking } },
          400,
        );
      const isMissing = method === "resources/read" && given.code === RESOURCE_NOT_FOUND;
      return this.error({ ...given, ...(isMissing && { code: INVALID_PARAMS }) }, given.code === METHOD_NOT_FOUND ? 404 : 200);
    }
    const plain = recordOf(result);
    await this.result(method === "tools/list" ? shownTools(plain, options.refused) : plain, options.serverInfo);
  }

  /** O1 */
  async result(result: Params, serverInfo: unknown): Promise<void> {
    const { method } = this.#asked;
    const stamped = {
      resultType: "complete",
      ...result,
      ...(CACHED.has(method) && { ttlMs: 0, cacheScope: "private" }),
      ...(serverInfo !== undefined && { _meta: { ...metaOf({ _meta: result._meta }), [SERVER_INFO]: serverInfo } }),
    };
    await this.#end({ jsonrpc: "2.0", id: this.#asked.id, result: stamped }, 200);
  }

  async error(error: Params, status: number): Promise<void> {
    await this.#end({ jsonrpc: "2.0", id: this.#asked.id, error }, status);
  }

  async send(message: object): Promise<void> {
    await this.#stream().message(JSON.stringify(message), null);
  }

  async #end(message: object, status: number): Promise<void> {
    clearTimeout(this.#timer);
    if (this.#response.destroyed) return;
    if (!this.#sse) return sendJson(this.#response, status, message);
    await this.#sse.message(JSON.stringify(message), null);
    this.#sse.end();
  }

  #stream(): SseResponse {
    clearTimeout(this.#timer);
    if (this.#sse) return this.#sse;
    tellsFailure(this.#response, (message) => void this.#end(message, 200));
    this.#sse = new SseResponse(this.#response, this.#keepAliveMs);
    return this.#sse;
  }
}
