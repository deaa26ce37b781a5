// What a send holds (contract §6.1), with what this server does not take yet refused by its name.

import { z } from "zod";
import { ClientInput } from "../../session-store/events/client.ts";
import { FileSource } from "../../session-store/events/content.ts";
import { NEVER, shownAs } from "./shown.ts";

const EVENTS_MAX = 100;

shownAs(FileSource, NEVER);
const WithFileRubric = z.looseObject({ type: z.literal("user.define_outcome"), rubric: z.looseObject({ type: z.literal("file") }) });
const WithFile = z.looseObject({ source: z.looseObject({ type: z.literal("file") }) });

/** One event, read strictly. */
export const SentEvent = z.preprocess((given, context) => {
  if (WithFileRubric.safeParse(given).success)
    context.addIssue({ code: "custom", path: ["rubric"], message: "`file` rubrics are not supported: there are no files here yet" });
  return given;
}, ClientInput.superRefine(refuseFiles));

export const Send = z.strictObject({ events: z.array(SentEvent).min(1).max(EVENTS_MAX, `at most ${EVENTS_MAX} events a request`) });
export type Send = z.infer<typeof Send>;

function refuseFiles(event: ClientInput, context: z.RefinementCtx): void {
  if (!("content" in event) || !event.content) return;
  for (const [index, block] of event.content.entries())
    if (WithFile.safeParse(block).success)
      context.addIssue({ code: "custom", path: ["content", index, "source"], message: "`file` sources are not supported" });
}
