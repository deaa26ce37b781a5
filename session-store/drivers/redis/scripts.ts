// The steps, read from the .lua files that lie beside this one: what all steps on a session share is put behind a step's first line.

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const ON_SESSIONS = ["create", "receive", "emit-events", "finish", "release", "take", "renew", "wake", "remove"] as const;
const ON_DOCUMENTS = ["put-documents", "discard-document"] as const;

export type StepName = (typeof ON_SESSIONS)[number] | (typeof ON_DOCUMENTS)[number];

export interface Script {
  readonly text: string;
  readonly sha: string;
}

export type Scripts = Readonly<Record<StepName, Script>>;

export function readScripts(): Scripts {
  const read = (name: string) => readFileSync(new URL(`./${name}.lua`, import.meta.url), "utf8");
  const shared = read("session");
  const scripts: Partial<Record<StepName, Script>> = {};
  for (const name of ON_SESSIONS) scripts[name] = scriptOf(withShared(read(name), shared));
  for (const name of ON_DOCUMENTS) scripts[name] = scriptOf(read(name));
  return scripts as Scripts;
}

/** The first line says what the step may do (`#!lua flags=…`), and has to stay the first. */
function withShared(step: string, shared: string): string {
  const end = step.indexOf("\n") + 1;
  return step.slice(0, end) + shared + step.slice(end);
}

const scriptOf = (text: string): Script => ({ text, sha: createHash("sha1").update(text).digest("hex") });
