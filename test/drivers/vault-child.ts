// A program that writes to a file vault until it is killed, and says what was answered: `node vault-child.js <folder>`.

import { join } from "node:path";
import { FileVault } from "../../vault-proxy/drivers/file/driver.ts";

const LANES = 4;
const folder = process.argv[2] ?? "";
const vault = await FileVault.open({ folder, keys: { type: "file", path: join(folder, "master.key"), isOwn: true } });

async function lane(id: string): Promise<never> {
  const key = { workspace: "default", kind: "vault" as const, id };
  const found = await vault.get(key);
  let revision = found?.revision ?? 0;
  for (let n = revision + 1; ; n += 1) {
    const answer = await vault.put(key, { n, filler: "x".repeat(20_000) }, revision);
    if (answer === "changed") throw new Error("nobody else writes");
    revision = answer;
    process.stdout.write(`${id} ${n}\n`);
  }
}

await Promise.all(Array.from({ length: LANES }, (_, at) => lane(`vlt_${at}`)));
