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

/** Makes the copy below `work` and gives its dist/ folder. G1 */
export async function sabotaged(work: string, { name, file, line, instead }: Sabotage): Promise<string> {
  const root = await mkdtemp(join(work, "sabotage-"));
  const dist = join(root, "dist");
  await mkdir(dist);
  await Promise.all([
    cp(join(ROOT, "dist"), dist, { recursive: true }),
    cp(join(ROOT, "package.json"), join(root, "package.json")),
    symlink(join(ROOT, "node_modules"), join(root, "node_modules")),
  ]);
  const text = await readFile(join(dist, file), "utf8");
  const parts = text.split(line);
  if (parts.length !== 2) throw new Error(`Sabotage "${name}": its line stands ${parts.length - 1} times in dist/${file}, not once.`);
  await writeFile(join(dist, file), parts.join(instead));
  return dist;
}
