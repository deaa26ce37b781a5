// What the scripted model plays: directives, one a line, in the last user text that holds any. A step is one answer of the model.
//
//   say: TEXT                          a text block; \n \t \\ \u{1F600} are understood
//   call NAME: {json}                  a tool use; neighbours are parallel; `*` in NAME picks the first offered tool that fits
//   ---                                the next step; any other content after a call starts one by itself
//   echo: PREFIX                       a text: the prefix, then the results that were just given, or the user's text
//   repeat: N TEXT                     a text, N times
//   dump: tools|system|model|messages  a text: what was given, as JSON
//   think: TEXT   redacted_think       thinking, with a signature that is checked when it comes back
//   unsigned_think: TEXT               thinking without one, which can't come back
//   truncated_call NAME: {"a":         a tool input that is cut off by the token limit
//   stop: REASON                       the stop reason
//   usage: input=1 output=2 cache_read=3 cache_write=4
//   wait: MS   token_delay: MS   chunk: N      before the answer, between deltas, characters a delta
//   error: STATUS times=N retry_after=S message="…"       an HTTP error, the first N times this step is asked for
//   sse_error: TYPE after=N times=N    an error event in the stream, after so many characters
//   malformed: after=N   drop: after=N   stall: MS after=N     broken JSON, a cut connection, silence
//
//   forced DIRECTIVE                   for requests that force a tool call (forced.ts)
//
// Other lines are passed over: they may be remarks, or make a text unique.

import { blocksOf, type ModelMessage } from "./request.ts";

export type Action =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "thinking"; readonly text: string }
  | { readonly type: "redacted_thinking"; readonly text: string }
  | { readonly type: "unsigned_thinking"; readonly text: string }
  | { readonly type: "echo"; readonly prefix: string }
  | { readonly type: "dump"; readonly what: string }
  | { readonly type: "call"; readonly name: string; readonly input: Readonly<Record<string, unknown>> }
  | { readonly type: "truncated_call"; readonly name: string; readonly json: string };

export interface Fault {
  readonly type: "error" | "sse_error" | "malformed" | "drop" | "stall";
  /** Status, error type or milliseconds, by type. */
  readonly value: string;
  readonly times: number;
  readonly after: number;
  readonly retryAfter: string | null;
  readonly message: string | null;
}

export interface Step {
  readonly actions: readonly Action[];
  readonly faults?: readonly Fault[];
  readonly stop?: string;
  readonly usage?: Readonly<Record<string, string>>;
  readonly waitMs?: number;
  readonly tokenDelayMs?: number;
  readonly chunkChars?: number;
}

/** Where in which script a request stands. `key` is the same for every request of one step. */
export interface Place {
  readonly step: Step | null;
  readonly key: string;
  readonly played: number;
}

/** Finds the script to follow and how much of it was played: the assistant's messages since. */
export function place(messages: readonly ModelMessage[]): Place {
  for (let at = messages.length - 1; at >= 0; at--) {
    const message = messages[at];
    if (message?.role !== "user") continue;
    const blocks = blocksOf(message);
    const texts = blocks.flatMap((block) => (block.type === "text" ? [block.text] : []));
    for (const text of texts.reverse()) {
      const steps = parseScript(text);
      if (steps === null) continue;
      const played = messages.slice(at + 1).filter((later) => later.role === "assistant").length;
      return { step: steps[played] ?? null, key: `${played}\n${text}`, played };
    }
    // A text beside tool results is a remark of the harness: the script lies further back. Any other plain text is a new task.
    if (texts.length > 0 && !blocks.some((block) => block.type === "tool_result")) break;
  }
  return { step: null, key: "", played: 0 };
}

const CALL = /^\s*(call|truncated_call)\s+(?:tool\s+)?([\w*.-]+)\s*:(.*)$/i;
const WITH_VALUE =
  /^\s*(say|think|redacted_think|unsigned_think|repeat|echo|dump|wait|token_delay|chunk|error|sse_error|malformed|drop|stall|stop|usage)\s*:(.*)$/i;
const ALONE = /^\s*(echo|malformed|drop|stall|redacted_think|---)\s*$/i;

type Open = { -readonly [Key in keyof Step]: Step[Key] } & { actions: Action[]; faults: Fault[]; calls: number };

/** The steps of a text; null if it holds no directive. */
export function parseScript(text: string): Step[] | null {
  const steps: Open[] = [];
  const open = (): Open => {
    const step: Open = { actions: [], faults: [], calls: 0 };
    steps.push(step);
    return step;
  };
  for (const line of text.split(/\r?\n/)) {
    const call = CALL.exec(line);
    const found = call ?? WITH_VALUE.exec(line) ?? ALONE.exec(line);
    if (found === null) continue;
    const word = (found[1] ?? "").toLowerCase();
    if (word === "---") {
      open();
      continue;
    }
    const last = steps.at(-1) ?? open();
    const belongs = last.calls === 0 || call !== null || word === "stop" || word === "usage";
    const step = belongs ? last : open();
    if (call === null) direct(step, word, (found[2] ?? "").trim());
    else callTool(step, word, call[2] ?? "", (call[3] ?? "").trim());
  }
  return steps.length === 0 ? null : steps;
}

function callTool(step: Open, word: string, name: string, json: string): void {
  if (word === "truncated_call") {
    step.actions.push({ type: "truncated_call", name, json: json === "" ? '{"cut":' : json });
    step.stop ??= "max_tokens";
    step.calls += 1;
    return;
  }
  const input = readInput(json);
  if (typeof input === "string") {
    step.actions.push({ type: "text", text: `scripted model: the input of ${name} is no JSON object: ${input}` });
    return;
  }
  step.actions.push({ type: "call", name, input });
  step.calls += 1;
}

function readInput(json: string): Record<string, unknown> | string {
  if (json === "") return {};
  try {
    const read: unknown = JSON.parse(json);
    return typeof read === "object" && read !== null && !Array.isArray(read) ? { ...read } : "another value";
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function direct(step: Open, word: string, rest: string): void {
  switch (word) {
    case "say":
      step.actions.push({ type: "text", text: unescaped(rest) });
      return;
    case "think":
      step.actions.push({ type: "thinking", text: unescaped(rest) });
      return;
    case "redacted_think":
      step.actions.push({ type: "redacted_thinking", text: rest });
      return;
    case "unsigned_think":
      step.actions.push({ type: "unsigned_thinking", text: unescaped(rest) });
      return;
    case "repeat": {
      const [, times, text = ""] = /^(\d+)\s?(.*)$/.exec(rest) ?? [];
      const said = times === undefined ? "scripted model: repeat needs a number" : unescaped(text === "" ? "x" : text).repeat(Number(times));
      step.actions.push({ type: "text", text: said });
      return;
    }
    case "echo":
      step.actions.push({ type: "echo", prefix: unescaped(rest) });
      return;
    case "dump":
      step.actions.push({ type: "dump", what: rest === "" ? "tools" : rest.toLowerCase() });
      return;
    case "wait":
      step.waitMs = Number(rest) || 0;
      return;
    case "token_delay":
      step.tokenDelayMs = Number(rest) || 0;
      return;
    case "chunk":
      step.chunkChars = Number(rest) || 0;
      return;
    case "stop":
      step.stop = rest;
      return;
    case "usage":
      step.usage = options(rest);
      return;
    case "error":
    case "sse_error":
    case "malformed":
    case "drop":
    case "stall":
      step.faults.push(fault(word, rest));
  }
}

function fault(type: Fault["type"], rest: string): Fault {
  const given = options(rest);
  const first = rest.split(/\s+/)[0] ?? "";
  return {
    type,
    value: first.includes("=") ? "" : first,
    times: given.times === undefined ? Number.POSITIVE_INFINITY : Number(given.times),
    after: Number(given.after ?? 0),
    retryAfter: given.retry_after ?? null,
    message: given.message ?? null,
  };
}

/** `a=1 b="two words"` as an object. */
function options(rest: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [, name = "", plain = "", quoted] of rest.matchAll(/([a-z_]+)=("([^"]*)"|\S+)/gi)) found[name.toLowerCase()] = quoted ?? plain;
  return found;
}

function unescaped(text: string): string {
  return text.replace(/\\(?:([nt\\])|u\{([0-9a-f]+)\})/gi, (_all, letter: string | undefined, code: string | undefined) => {
    if (code !== undefined) return String.fromCodePoint(Number.parseInt(code, 16));
    return letter === "n" ? "\n" : letter === "t" ? "\t" : "\\";
  });
}
