// The leak scan: no secret is anywhere but where it belongs, and the search for it finds whatever is planted. How: test/leaks/scan.ts.

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { Canaries } from "../leaks/canaries.ts";
import { House, type Kind } from "../leaks/house.ts";
import { Outside } from "../leaks/outside.ts";
import { isRoot } from "../leaks/processes.ts";
import { type Scanned, scan } from "../leaks/scan.ts";
import { ensureImage, IMAGE_MS } from "../support/docker.ts";
import { needs } from "../support/real-part.ts";

/** Most of it waits: for leases, and for the minute after which the gateway's heap is looked at. */
const SCAN_MS = 420_000;
const KINDS = ["apart", "npm start"] as const;

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
      const scanned = await scan({ house, outside, canaries, tell }, kind);
      const { planted, surfaces, bytes } = scanned;
      process.stdout.write(`leak scan, ${kind}: ${planted} plants on ${surfaces} surfaces, ${Math.round(bytes / 1e6)} MB searched, ${told.at(-1)}\n`);
      return scanned;
    } catch (error) {
      process.stdout.write(`leak scan, ${kind}:\n${told.join("\n")}\n`);
      throw error;
    } finally {
      await house.close();
    }
  } finally {
    await outside.close();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Memory of other users' processes is root's to read. */
function scanning(): typeof describe | typeof describe.skip {
  const found = needs("docker", "redis-server");
  if (isRoot()) return found;
  if (process.env.CI) throw new Error("In CI nothing is skipped: the leak scan reads other processes' memory and wants root.");
  process.stderr.write("\n*** SKIPPED: the leak scan reads other processes' memory and wants root. ***\n");
  return describe.skip;
}

scanning()("of two installations that use every kind of credential, fail and crash", () => {
  const scanned = new Map<Kind, Scanned>();
  beforeAll(async () => {
    await ensureImage();
    const all = await Promise.allSettled(KINDS.map(async (kind) => scanned.set(kind, await scanOf(kind))));
    for (const one of all) if (one.status === "rejected") throw one.reason;
  }, SCAN_MS + IMAGE_MS);

  test.each(KINDS)("%s: every secret was used where it belongs", (kind) => {
    expect(scanned.get(kind)?.unused).toEqual([]);
  });

  test.each(KINDS)("%s: no secret is on any surface, in any encoding", (kind) => {
    expect(scanned.get(kind)?.leaks).toEqual([]);
  });

  test.each(KINDS)("%s: everything that was planted was found, on every surface and in every encoding", (kind) => {
    expect(scanned.get(kind)?.missed).toEqual([]);
    expect(scanned.get(kind)?.planted).toBeGreaterThan(500);
  });
});
