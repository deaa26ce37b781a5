// What a send holds (contract §6.1), with what this server does not take yet refused by its name.

import { z } from "zod";
import { ClientInput } from "../../session-store/events/client.ts";
import { invalid } from "../answer.ts";
import { check } from "./check.ts";

const EVENTS_MAX = 100;

export const Send = z.strictObject({ events: z.array(z.unknown()).min(1).max(EVENTS_MAX, `at most ${EVENTS_MAX} events a request`) });

const Typed = z.looseObject({ type: z.string() });

/** One event, read strictly; `path` is where it stands in the request. */
export function readEvent(given: unknown, path: string): ClientInput {
  const typed = Typed.safeParse(given);
  if (typed.success && typed.data.type === "user.define_outcome") throw invalid(`${path}: \`user.define_outcome\` is not supported`);
  const event = check(ClientInput, given, undefined, path.split("."));
  if ("content" in event && event.content) refuseFiles(event.content, `${path}.content`);
  return event;
}

const WithFile = z.looseObject({ source: z.looseObject({ type: z.literal("file") }) });

function refuseFiles(content: readonly unknown[], path: string): void {
  for (const [index, block] of content.entries())
    if (WithFile.safeParse(block).success) throw invalid(`${path}.${index}.source: \`file\` sources are not supported`);
}
