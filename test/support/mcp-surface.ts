// A surface for tests of the door itself: tools that echo, count, wait, ask and break.

import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { ask, failure, type Surface, tool } from "../../gateway/mcp/surface.ts";

const NONE = z.object({});
const said = (text: string) => ({ content: [{ type: "text" as const, text }] });

export interface Probe {
  readonly surface: () => Surface;
  /** Runs of the tool `effect`, by caller. */
  readonly effects: string[];
  /** Calls of `wait` that were called off. */
  calledOff: number;
  /** Lets the calls of `hold` go on. */
  release(): void;
}

export function probe(): Probe {
  const effects: string[] = [];
  const counters = new Map<string, number>();
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const NAME = {
    method: "elicitation/create" as const,
    params: { message: "Who?", requestedSchema: { type: "object" as const, properties: { name: { type: "string" as const } }, required: ["name"] } },
  };
  const Answer = z.looseObject({ content: z.looseObject({ name: z.string() }) });
  const self: Probe = {
    effects,
    calledOff: 0,
    release: () => release(),
    surface: () => ({
      info: { name: "probe", version: "1" },
      tools: [
        tool({
          name: "echo",
          description: "Says it back, with progress",
          input: z.object({ text: z.string(), pauseMs: z.number().default(0) }),
          async run({ text, pauseMs }, { progress, caller }) {
            progress(1, 2, text);
            await sleep(pauseMs);
            progress(2, 2, text);
            return said(`${caller.name} ${text}`);
          },
        }),
        tool({
          name: "still",
          description: "Says nothing for a while, then one thing",
          input: z.object({ pauseMs: z.number() }),
          async run({ pauseMs }) {
            await sleep(pauseMs);
            return said("still here");
          },
        }),
        tool({
          name: "count",
          description: "Counts its caller's calls",
          input: NONE,
          async run(_, { caller }) {
            counters.set(caller.name, (counters.get(caller.name) ?? 0) + 1);
            return said(String(counters.get(caller.name)));
          },
        }),
        tool({
          name: "wait",
          description: "Waits until it is called off",
          input: NONE,
          async run(_, { signal }) {
            await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
            self.calledOff += 1;
            return said("called off");
          },
        }),
        tool({
          name: "hold",
          description: "Waits until the test lets it go on",
          input: NONE,
          async run(_, { progress, hangUp }) {
            progress(1);
            hangUp();
            await held;
            progress(2);
            return said("let go");
          },
        }),
        tool({
          name: "effect",
          description: "Asks, then acts",
          input: z.object({ what: z.string().default("it") }),
          async run({ what }, { answers, state, caller }) {
            const answer = Answer.safeParse(answers?.form);
            if (!answer.success || state !== `for ${what}`) return ask({ form: NAME }, `for ${what}`);
            effects.push(`${caller.name} ${what} ${answer.data.content.name}`);
            return said(`did ${what} for ${answer.data.content.name}`);
          },
        }),
        tool({ name: "other", description: "Asks, too", input: NONE, run: async () => ask({ form: NAME }, "for it") }),
        tool({
          name: "leak",
          description: "Breaks, with secrets in its words",
          input: NONE,
          run: async () => {
            throw new Error("can't reach https://user:hunter2@upstream.internal/vault/path");
          },
        }),
        tool({ name: "fail", description: "Fails", input: NONE, run: async () => failure("as expected") }),
      ],
      resources: {
        templates: [],
        list: async (_cursor, { caller }) => ({ resources: [{ uri: `test://of/${caller.name}`, name: "mine" }] }),
        read: async (uri, { caller }) => (uri === `test://of/${caller.name}` ? { contents: [{ uri, text: caller.name }] } : null),
        mayWatch: async (uri, caller) => uri === `test://of/${caller.name}`,
        watch: (_uri, _changed, signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve(), { once: true })),
      },
    }),
  };
  return self;
}
