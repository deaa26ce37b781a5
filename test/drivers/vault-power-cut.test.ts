// A power cut takes what was not synced: of a file vault, nothing that was answered. What the cut does not take is the order of names in a folder.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { expect, vi } from "vitest";
import { FileVault } from "../../vault-proxy/drivers/file/driver.ts";
import { seeded } from "../chaos/seed.ts";
import { compileSyncmark, cutPower, markedEnv } from "../proof/cut.ts";
import { ROOT } from "../support/process.ts";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { until } from "../support/until.ts";

vi.setConfig({ testTimeout: 120_000 });

const CUTS = 3;
const WRITES = 30;

needs("gcc")("a power cut", () => {
  proves("credential:kept", "of a file vault loses nothing that was answered", async () => {
    const chance = seeded("vault power cut");
    const work = await mkdtemp(join(tmpdir(), "manyhands-vault-cut-"));
    const shim = await compileSyncmark(work);
    for (let cut = 0; cut < CUTS; cut += 1) {
      const [folder, marks] = [join(work, `data-${cut}`), join(work, `marks-${cut}`)];
      await Promise.all([mkdir(folder), mkdir(marks)]);
      const child = spawn(process.execPath, [join(ROOT, "dist/test/drivers/vault-child.js"), folder], {
        stdio: ["ignore", "pipe", "inherit"],
        env: { PATH: process.env.PATH, ...markedEnv(shim, folder, marks) },
      });
      const acknowledged = new Map<string, number>();
      let writes = 0;
      createInterface({ input: child.stdout }).on("line", (line) => {
        const [id = "", n] = line.split(" ");
        acknowledged.set(id, Number(n));
        writes += 1;
      });
      await until(() => writes >= WRITES, { timeoutMs: 60_000 });
      child.kill("SIGKILL");
      await once(child, "close");
      await cutPower(folder, marks, () => chance.next() < 0.5);
      const vault = await FileVault.open({ folder, keys: { type: "file", path: join(folder, "master.key"), isOwn: true } });
      for (const [id, n] of acknowledged) {
        const found = await vault.get({ workspace: "default", kind: "vault", id });
        const body = found?.body as { n: number } | undefined;
        expect([cut, id, [n, n + 1].includes(body?.n ?? -1)]).toEqual([cut, id, true]);
      }
      await vault.close();
    }
    await rm(work, { recursive: true });
  });
});
