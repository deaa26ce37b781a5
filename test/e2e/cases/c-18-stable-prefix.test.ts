// The front of the prompt is the same bytes at every request: tools and system over twenty turns, a hand-over and a crash; at most four cache
// markers; no time of day. What was said before stays as it was, so that the cache reaches to the last message.
//
// openclaw/openclaw#58037, openai/codex#2611, goruck/home-generative-agent#617, nex-agi/NexAU#12

import { createHash } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { proves } from "../../support/proves.ts";
import { LOOK_UP, type ModelBody, Stage, TOOLSET } from "./stage.ts";

const TURNS = 20;
const SYSTEM = "Be brief. Answer in the user's language.";
const CLOCK = /\b20\d\d-\d\d-\d\d|\b\d\d:\d\d\b|\b1[6-9]\d{8}\b|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b/;

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

const hashOf = ({ tools, system }: ModelBody) =>
  createHash("sha256")
    .update(JSON.stringify([tools, system]))
    .digest("hex");
const markersIn = (body: ModelBody) => JSON.stringify(body).split('"cache_control"').length - 1;
/** Messages without their markers, which move on with the conversation. */
const bareMessages = ({ messages }: ModelBody): readonly string[] =>
  messages.map((message) => JSON.stringify(message, (name, value: unknown) => (name === "cache_control" ? undefined : value)));

proves("prompt:stable", "twenty turns, a hand-over and a crash give one prefix", async () => {
  const session = await stage.session([TOOLSET, LOOK_UP], { system: SYSTEM });
  for (let turn = 1; turn <= TURNS; turn += 1) {
    if (turn === 8) {
      await stage.installation.stop("node");
      await stage.installation.startMissing();
    }
    if (turn === 15) await stage.restart("node");
    await session.turn(turn % 4 === 0 ? `call bash: {"command":"echo ${turn}"}\n---\nsay: turn ${turn}` : `think: hm\nsay: turn ${turn}`);
  }
  const bodies = session.requests().map(({ body }) => body);
  expect(bodies.length).toBe(TURNS + TURNS / 4);
  expect(new Set(bodies.map(hashOf)).size).toBe(1);
  expect(Math.max(...bodies.map(markersIn))).toBeLessThanOrEqual(4);
  expect(JSON.stringify([bodies[0]?.tools, bodies[0]?.system])).not.toMatch(CLOCK);
  for (const [at, body] of bodies.entries()) {
    const before = bodies[at - 1];
    if (before) expect(bareMessages(body).slice(0, before.messages.length)).toEqual(bareMessages(before));
  }
});

test("two sessions of one agent share their prefix", async () => {
  const [one, other] = [await stage.session([TOOLSET, LOOK_UP], { system: SYSTEM }), await stage.session([TOOLSET, LOOK_UP], { system: SYSTEM })];
  await Promise.all([one.turn("say: one"), other.turn("say: other")]);
  expect(hashOf(one.lastRequest())).toBe(hashOf(other.lastRequest()));
});
