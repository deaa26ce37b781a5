// Whom people chat with: an agent with a sandbox, whose shell asks first, and with one tool that this application answers itself.

import { createHash } from "node:crypto";
import type Anthropic from "@anthropic-ai/sdk";
import { z } from "zod";

const LOOKED_AT_MAX = 500;

type AgentParams = Anthropic.Beta.AgentCreateParams;

const CURRENT_TIME = "current_time";

const definition = (model: string): AgentParams => ({
  name: "Chat example",
  model,
  system: "You are a friendly assistant. Be brief. You have a sandbox to work in; before a shell command runs, the user is asked whether it may.",
  tools: [
    {
      type: "agent_toolset_20260401",
      configs: [{ name: "bash", permission_policy: { type: "always_ask" } }],
    },
    {
      type: "custom",
      name: CURRENT_TIME,
      description: "Tells the time now. Use it whenever the answer depends on today's date or the time of day.",
      input_schema: {
        type: "object",
        properties: { timezone: { type: "string", description: "An IANA name, such as Europe/Paris; UTC if left out." } },
      },
    },
  ],
});

export interface Assistant {
  readonly agentId: string;
  readonly environmentId: string;
}

/** Finds the agent and the environment of an earlier start, or makes them. */
export async function findAssistant(client: Anthropic, model: string): Promise<Assistant> {
  const params = definition(model);
  // An agent of another definition is another agent: sessions keep the one that they were made with.
  const mark = { chat_example: createHash("sha256").update(JSON.stringify(params)).digest("hex").slice(0, 16) };
  const isMarked = ({ metadata }: { metadata: Record<string, string> }) => metadata.chat_example === mark.chat_example;
  const agent = (await first(client.beta.agents.list(), isMarked)) ?? (await client.beta.agents.create({ ...params, metadata: mark }));
  const environment =
    (await first(client.beta.environments.list(), isMarked)) ??
    (await client.beta.environments.create({ name: `chat-example-${mark.chat_example}`, metadata: mark }));
  return { agentId: agent.id, environmentId: environment.id };
}

async function first<T>(items: AsyncIterable<T>, fits: (item: T) => boolean): Promise<T | null> {
  let count = 0;
  for await (const item of items) {
    if (fits(item)) return item;
    count += 1;
    if (count >= LOOKED_AT_MAX) break;
  }
  return null;
}

export interface Answer {
  readonly text: string;
  readonly isError: boolean;
}

const TimeInput = z.object({ timezone: z.string().max(100).optional() });

/** Runs one of this application's own tools. What goes wrong is an answer, too: the model reads it. */
export function runTool(name: string, input: unknown, now = new Date()): Answer {
  if (name !== CURRENT_TIME) return { text: `There is no tool ${name} here.`, isError: true };
  const read = TimeInput.safeParse(input);
  if (!read.success) return { text: "timezone must be a name such as Europe/Paris.", isError: true };
  const { timezone = "UTC" } = read.data;
  try {
    const text = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long", timeZone: timezone }).format(now);
    return { text: `${text} (${now.toISOString()})`, isError: false };
  } catch {
    return { text: `${timezone} is not a time zone.`, isError: true };
  }
}
