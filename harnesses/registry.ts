// The harnesses of this build, by name.

import { claudeHarness } from "./claude/harness.ts";
import type { Harness } from "./harness.ts";

const DEFAULT = "claude";

const HARNESSES: Readonly<Record<string, () => Harness>> = {
  claude: () => claudeHarness(),
};

export const harnessNames = (): readonly string[] => Object.keys(HARNESSES);

/** Makes the harness of that name; what a session does not choose is thought by the default one. */
export async function loadHarness(name = DEFAULT): Promise<Harness> {
  const make = Object.hasOwn(HARNESSES, name) ? HARNESSES[name] : undefined;
  if (!make) throw new Error(`There is no harness "${name}"; there is: ${Object.keys(HARNESSES).join(", ")}.`);
  return make();
}
