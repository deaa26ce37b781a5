// The thread of one search at a time.

import { parentPort } from "node:worker_threads";
import { says, ToolError } from "../../tools/answer.ts";
import { glob, grep } from "../../tools/find.ts";
import { placesInContainer } from "./places.ts";
import type { Search, SearchAnswer } from "./search.ts";

if (parentPort === null) throw new Error("to be started as a thread");
const port = parentPort;
const places = placesInContainer();

port.on("message", ({ tool, input }: Search) => void answer(tool, input));

async function answer(tool: Search["tool"], input: unknown): Promise<void> {
  let said: SearchAnswer;
  try {
    // The host has read the input by the tool's schema.
    said = {
      answer: tool === "glob" ? await glob(places, input as Parameters<typeof glob>[1]) : await grep(places, input as Parameters<typeof grep>[1]),
    };
  } catch (error) {
    said =
      error instanceof ToolError
        ? { answer: says(`Error: ${error.message}.`, true) }
        : { broke: error instanceof Error ? error.message : "it broke" };
  }
  port.postMessage(said);
}
