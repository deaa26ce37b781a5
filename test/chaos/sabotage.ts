// Sabotage: a copy of the built product with one rule taken out, to see that its proof turns red.
//
//   G1  The line to take out is there exactly once, or there is an error: a sabotage that changed nothing would prove nothing.

import { cp, mkdir, mkdtemp, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ROOT } from "../support/process.ts";

export interface Sabotage {
  /** What is taken out, in words. */
  readonly name: string;
  /** Path below dist/. */
  readonly file: string;
  readonly line: string;
  readonly instead: string;
}

/** Makes the copy below `work`, with all of these taken out, and gives its dist/ folder. G1 */
export async function sabotaged(work: string, ...sabotages: readonly Sabotage[]): Promise<string> {
  const root = await mkdtemp(join(work, "sabotage-"));
  const dist = join(root, "dist");
  await mkdir(dist);
  await Promise.all([
    cp(join(ROOT, "dist"), dist, { recursive: true }),
    cp(join(ROOT, "package.json"), join(root, "package.json")),
    symlink(join(ROOT, "node_modules"), join(root, "node_modules")),
  ]);
  for (const { name, file, line, instead } of sabotages) {
    const text = await readFile(join(dist, file), "utf8");
    const parts = text.split(line);
    if (parts.length !== 2) throw new Error(`Sabotage "${name}": its line stands ${parts.length - 1} times in dist/${file}, not once.`);
    await writeFile(join(dist, file), parts.join(instead));
  }
  return dist;
}

/** The worker never looks at the clock and never believes that its lease is lost: what is left is the fence. Two lines of one rule. */
export const BLIND_TO_TIME: readonly Sabotage[] = [
  {
    name: "a lease without an end",
    file: "harnesses/lease-keeper.js",
    line: "return !this.#controller.signal.aborted && performance.now() < this.#deadline;",
    instead: "return true;",
  },
  {
    name: "a lost renewal is passed over",
    file: "harnesses/lease-keeper.js",
    line: "lose(cause) {",
    instead: "lose(cause) { if (cause === undefined) return;",
  },
];

export const NO_FENCE_IN_STORE: Sabotage = {
  name: "no fence and no count at the append",
  file: "session-store/drivers/redis/emit-events.lua",
  line: "if no then return no end",
  instead: "",
};

export const NO_FENCE_IN_HAND: Sabotage = {
  name: "no fence at the hand host",
  file: "hands/calls.js",
  line: "return holder.session !== row.holder || holder.fence < row.fence;",
  instead: "return false;",
};

export const NO_LEDGER: Sabotage = {
  name: "the hand host forgets what it ran",
  file: "hands/calls.js",
  line: "const row = this.#ledger.call(hand, toolUseId);",
  instead: "const row = undefined;",
};

export const NO_ROW_BEFORE_START: Sabotage = {
  name: "a tool starts before its row is durable",
  file: "hands/calls.js",
  line: "const started = this.#ledger.started(hand, job.holder, call.id);",
  instead: "const started = Promise.resolve();",
};

export const SPANS_STAY_OPEN: Sabotage = {
  name: "a recovery leaves the dead worker's model request open",
  file: "harnesses/steps.js",
  line: "if (view.openSpan !== null)",
  instead: "if (false)",
};

export const IDS_FORGOTTEN: Sabotage = {
  name: "a client's event id is stored again",
  file: "session-store/drivers/redis/receive.lua",
  line: "if #known > 0 then",
  instead: "if false then",
};

export const LEASES_FOR_EVER: Sabotage = {
  name: "a dead worker's session is not offered again",
  file: "session-store/drivers/redis/take.lua",
  line: "schedule(KEYS[1], meta, id, now + ARGV[3])",
  instead: "schedule(KEYS[1], meta, id, now + 3000000)",
};
