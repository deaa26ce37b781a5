// The runner: the one program of ours inside a container. The hand host starts it there and speaks to it over its standard input and output.
//
//   X1  It runs as the same user as the commands do, so it keeps nothing that they must not have, and the host believes nothing that it says unread.
//   X2  When the host goes away its input ends: everything that runs is ended, and so is it.

import { says, ToolError } from "../../tools/answer.ts";
import { edit, read, write } from "../../tools/files.ts";
import { codeOf } from "../../tools/places.ts";
import type { ToolInput } from "../../toolset.ts";
import { FrameReader, frame } from "../frames.ts";
import type { FromRunner, ToRunner } from "../protocol.ts";
import { openDoor } from "./door.ts";
import { assertInContainer, endEveryone } from "./everyone.ts";
import { placesInContainer } from "./places.ts";
import { Searches } from "./search.ts";
import { Shell } from "./shell.ts";

type Run = Extract<ToRunner, { type: "run" }>;

assertInContainer();
process.umask(0o022);
// What a runner before this one left behind.
await endEveryone();

const places = placesInContainer();
const shell = new Shell();
const searches = new Searches();
/** The call that the shell runs. */
let inShell: number | undefined;

// The host's own program sends nothing else.
const reader = new FrameReader((value) => hear(value as ToRunner));
process.stdin.on("data", (chunk: Buffer) => reader.push(chunk));
process.stdin.on("end", () => void leave(0));
process.stdin.on("error", () => void leave(0));
process.on("uncaughtException", (error) => {
  process.stderr.write(`${error.stack ?? error.message}\n`);
  void leave(1);
});
openDoor();
shell.prepare();
say({ type: "ready" });

function hear(message: ToRunner): void {
  switch (message.type) {
    case "ping":
      say({ type: "pong" });
      break;
    case "cancel":
      void cancel(message.n);
      break;
    case "run":
      void run(message);
      break;
  }
}

async function run(call: Run): Promise<void> {
  const { n } = call;
  try {
    const said = call.tool === "bash" ? await inBash(call) : await withFiles(call);
    say(said === null ? { type: "cancelled", n } : { type: "done", n, ...said });
  } catch (error) {
    if (error instanceof ToolError) say({ type: "done", n, ...says(`Error: ${error.message}.`, true) });
    else say({ type: "failed", n, reason: `the tool broke (${codeOf(error) || (error instanceof Error ? error.message : "unknown")})` });
  }
}

async function inBash({ n, id, input, timeoutMs }: Run) {
  const { command = "", restart } = input as ToolInput<"bash">;
  if (restart === true) shell.restart();
  if (command === "") return says("The shell was restarted; files kept.");
  inShell = n;
  try {
    return await shell.run({ id, text: command, timeoutMs });
  } finally {
    inShell = undefined;
  }
}

async function withFiles({ n, tool, input, timeoutMs }: Run) {
  switch (tool) {
    case "read":
      return await read(places, input as ToolInput<"read">);
    case "write":
      return await write(places, input as ToolInput<"write">);
    case "edit":
      return await edit(places, input as ToolInput<"edit">);
    case "glob":
    case "grep": {
      let isLate = false;
      const timer = setTimeout(() => {
        isLate = true;
        void searches.end(n);
      }, timeoutMs);
      const said = await searches.run(n, { tool, input });
      clearTimeout(timer);
      if (isLate) return says(`Timed out after ${timeoutMs} ms.`, true);
      if (said !== null && "broke" in said) throw new Error(said.broke);
      return said === null ? null : said.answer;
    }
    default:
      throw new Error(`no tool ${tool}`);
  }
}

async function cancel(n: number): Promise<void> {
  if (inShell === n) shell.cancel();
  else await searches.end(n);
}

function say(message: FromRunner): void {
  process.stdout.write(frame(message));
}

/** X2 */
async function leave(code: number): Promise<void> {
  await endEveryone();
  process.exit(code);
}
