// `manyhands status`: is the gateway of these settings alive, and is it ready to work?

import { request } from "undici";
import { type Environment, readConfig } from "./config.ts";
import { reachable } from "./launch.ts";

const ANSWER_MS = 3_000;

export interface Status {
  readonly text: string;
  readonly isReady: boolean;
}

export async function status(env?: Environment): Promise<Status> {
  const config = readConfig(env);
  const url = `http://${reachable(config.host)}:${config.port}`;
  const alive = await ask(`${url}/healthz`);
  const ready = await ask(`${url}/readyz`);
  return { text: `${url}\n  alive  ${alive.says}\n  ready  ${ready.says}\n`, isReady: alive.isYes && ready.isYes };
}

async function ask(url: string): Promise<{ readonly isYes: boolean; readonly says: string }> {
  try {
    const answer = await request(url, { headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS });
    await answer.body.dump();
    return { isYes: answer.statusCode === 200, says: answer.statusCode === 200 ? "yes" : `no (status ${answer.statusCode})` };
  } catch (error) {
    return { isYes: false, says: `no (${error instanceof Error && "code" in error ? String(error.code) : "no answer"})` };
  }
}
