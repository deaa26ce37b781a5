// What an environment asks for and no hand can give yet. A session is made all the same, or clients of the API would be refused for what they can do
// without. So it is said where it does not break a client: beside the answer, and in the log.

import type { Asker, Door } from "./call.ts";
import type { EnvironmentConfig } from "./environment-schema.ts";

/** Says at a session's creation what its environment asks for in vain. */
export function tellUnmet(door: Door, call: Asker, environmentId: string, config: EnvironmentConfig): void {
  const unmet = unmetOf(config);
  if (unmet.length === 0) return;
  call.notify(unmet.map((each) => SAYS[each]).join("; "));
  door.log.warn({ environmentId, unmet }, "environment.unmet");
}

const SAYS = {
  packages: "config.packages: no packages are installed",
} as const;

function unmetOf(config: EnvironmentConfig): readonly (keyof typeof SAYS)[] {
  if (config.type === "self_hosted") return [];
  return Object.values(config.packages).some((list) => Array.isArray(list) && list.length > 0) ? ["packages"] : [];
}
