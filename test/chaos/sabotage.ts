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
