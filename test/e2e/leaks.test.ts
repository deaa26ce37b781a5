// The leak scan: no secret is anywhere but where it belongs, and the search for it finds whatever is planted. test/leaks/scan.ts says how.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Canaries } from "../leaks/canaries.ts";
import { House, type Kind } from "../leaks/house.ts";
import { Outside } from "../leaks/outside.ts";
import { isRoot } from "../leaks/processes.ts";
import { type Scanned, scan } from "../leaks/scan.ts";
import { ensureImage, IMAGE_MS } from "../support/docker.ts";
import { needs } from "../support/real-part.ts";

const SCAN_MS = 420_000;

const scanned = new Map<Kind, Scanned | Error>();

async function scanOf(kind: Kind): Promise<Scanned> {
  const folder = await mkdtemp(join(tmpdir(), "leaks-"));
  const canaries = new Canaries();
  const outside = await Outside.open(canaries);
  const startedAt = performance.now();
  const told: string[] = [];
  const tell = (what: string) => void told.push(`${((performance.now() - startedAt) / 1_000).toFixed(1)} s: ${what}`);
  try {
    const house = await House.open(kind, folder, outside, canaries);
    try {
      return await scan({ house, outside, canaries, tell }, kind);
    } finally {
      await house.close();
      console.log(`${kind}\n${told.join("\n")}`);
    }
  } finally {
    await outside.close();
    await rm(folder, { recursive: true, force: true });
  }
}

needs("docker", "redis-server")("the leak scan", () => {
  test(
    "x",
    async () => {
      await ensureImage();
      for (const kind of (process.env.KINDS ?? "apart").split(",") as Kind[]) {
        const { leaks, missed, ...figures } = await scanOf(kind);
        console.log(kind, figures);
        const count = (all: string[]) => {
          const m = new Map<string, number>();
          for (const a of all) m.set(a, (m.get(a) ?? 0) + 1);
          return [...m].map(([a, n]) => `${n} ${a}`).join("\n");
        };
        console.log("LEAKS", count(leaks.map((l) => `${l.surface} | ${l.place} | ${l.canary} | ${l.encoding}`)).slice(0, 9000));
        console.log("MISSED", missed.length, missed.join("\n").slice(0, 6000));
      }
    },
    SCAN_MS,
  );
});
