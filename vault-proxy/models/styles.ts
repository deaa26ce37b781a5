// What a request of the Messages API becomes at a provider that speaks another form of it.
//
//   vertex   POST {base}/publishers/anthropic/models/{model}:rawPredict | :streamRawPredict; the model leaves the body, `anthropic_version` enters it.
//   bedrock  POST {base}/model/{model}/invoke | /invoke-with-response-stream; model and stream leave the body, version and betas enter it; a stream
//            comes back in the platform's own frames (event-frames.ts).

import type { JsonObject } from "./fields.ts";
import type { Provider, Style } from "./providers.ts";

const VERSIONS: Readonly<Record<Exclude<Style, "messages">, string>> = { vertex: "vertex-2023-10-16", bedrock: "bedrock-2023-05-31" };
/** It becomes a part of a path: one that means the path above is no name, encoded or not. */
const MODEL_NAME = /^(?!(?:.*\/)?\.{1,2}(?:\/|$))[\w.:@/-]{1,256}$/;

export interface Shaped {
  /** Below the provider's base URL, with its query. */
  readonly path: string;
  /** Null: as it came. */
  readonly body: Buffer | null;
  readonly answer: "as_it_is" | "event_frames";
}

/** Null: this provider's style has no such request. `path` is the Messages API's own. */
export function shape(provider: Provider, path: string, model: string, body: JsonObject, betas: string | undefined): Shaped | null {
  const name = provider.nameOf(model);
  if (provider.style === "messages") return { path, body: name === model ? null : body.with({ model: name }), answer: "as_it_is" };
  if (!/^\/v1\/messages(\?|$)/.test(path) || !MODEL_NAME.test(name)) return null;
  const isStream = body.get("stream") === true;
  const anthropic_version = VERSIONS[provider.style];
  if (provider.style === "vertex")
    return {
      path: `/publishers/anthropic/models/${encodeURIComponent(name)}:${isStream ? "streamRawPredict" : "rawPredict"}`,
      body: body.with({ model: undefined, anthropic_version }),
      answer: "as_it_is",
    };
  const anthropic_beta = betas?.split(",").map((beta) => beta.trim());
  return {
    path: `/model/${encodeURIComponent(name)}/${isStream ? "invoke-with-response-stream" : "invoke"}`,
    body: body.with({ model: undefined, stream: undefined, anthropic_version, anthropic_beta }),
    answer: isStream ? "event_frames" : "as_it_is",
  };
}
