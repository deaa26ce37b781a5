// The thread of one virtual sandbox: runs what it is given and answers. The sandbox ends it when a call takes too long.

import { parentPort, workerData } from "node:worker_threads";
import { type Answer, says, ToolError } from "../tools/answer.ts";
import { isOverCap, outputName, preview } from "../tools/cap.ts";
import { edit, read, replace, write } from "../tools/files.ts";
import { glob, grep } from "../tools/find.ts";
import { layOut, Places, WORKSPACE } from "../tools/places.ts";
import { TOOL_INPUTS, type ToolInput } from "../toolset.ts";
import type { FromThread, ShellState, ToThread } from "./protocol.ts";
import { Shell } from "./shell.ts";

if (parentPort === null || typeof workerData !== "string") throw new Error("to be started as a sandbox's thread");
const port = parentPort;
const places = new Places(layOut(workerData));
const shell = new Shell(places);

port.on("message", (call: ToThread) => void answer(call));

async function answer(call: ToThread): Promise<void> {
  let said: FromThread;
  try {
    said = { id: call.id, ...(await run(call)) };
  } catch (error) {
    if (!(error instanceof ToolError)) throw error; // A bug ends the thread; the sandbox says so to the model.
    said = { id: call.id, answer: says(`Error: ${error.message}.`, true) };
  }
  port.postMessage(said);
}

async function run({ id, tool, input, shell: state }: ToThread): Promise<{ answer: Answer; shell?: ShellState | null }> {
  switch (tool) {
    case "bash":
      return bash(id, TOOL_INPUTS.bash.parse(input), state);
    case "read":
      return { answer: await read(places, TOOL_INPUTS.read.parse(input)) };
    case "write":
      return { answer: await write(places, TOOL_INPUTS.write.parse(input)) };
    case "edit":
      return { answer: await edit(places, TOOL_INPUTS.edit.parse(input)) };
    case "glob":
      return { answer: await glob(places, TOOL_INPUTS.glob.parse(input)) };
    case "grep":
      return { answer: await grep(places, TOOL_INPUTS.grep.parse(input)) };
  }
}

/**
 * Output, then what went to stderr, then the exit code where it is not 0. Such a result is no error to the model's API: many commands say
 * something by their code (grep, diff, test), and the model reads it.
 */
async function bash(id: string, input: ToolInput<"bash">, state: ShellState | null): Promise<{ answer: Answer; shell: ShellState | null }> {
  const start = input.restart === true ? null : state;
  if (input.command === undefined || input.command === "") return { answer: says("The shell was restarted; files kept."), shell: null };
  const ran = await shell.run(input.command, start);
  const parts = [ran.stdout, ran.stderr].map((part) => part.toWellFormed().replace(/\n$/, "")).filter((part) => part !== "");
  if (ran.isForgetful) parts.push("[the variables are too large to be kept for the next call]");
  if (ran.exitCode !== 0) parts.push(`exit code ${ran.exitCode}`);
  const text = parts.join("\n");
  if (!isOverCap(text)) return { answer: says(text === "" ? "(no output)" : text), shell: ran.shell };
  const place = await places.find(`${WORKSPACE}/.manyhands/${outputName(id)}`);
  await replace(place, text);
  return { answer: says(preview(text, `All of it is in ${place.path}.`)), shell: ran.shell };
}
