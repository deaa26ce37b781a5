// Borders between rooms: a check that saw nothing would be green, so a bad import is planted in each room and must be reported.

import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, normalize } from "node:path";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { ROOT } from "./support/process.ts";
import { proves } from "./support/proves.ts";

/** Room (and a file in it) → what it must not import, relative to that file. */
const FORBIDDEN: readonly (readonly [string, readonly string[]])[] = [
  [
    "session-store/planted.ts",
    ["../hands/hand.ts", "../harnesses/harness.ts", "../gateway/config.ts", "../vault-proxy/grant.ts", "../test/promises.ts"],
  ],
  ["session-store/drivers/redis/planted.ts", ["../../../hands/hand.ts", "../../../gateway/config.ts"]],
  ["vault-proxy/planted.ts", ["../session-store/ids.ts", "../hands/hand.ts", "../harnesses/harness.ts", "../gateway/config.ts"]],
  ["hands/planted.ts", ["../harnesses/harness.ts", "../gateway/config.ts", "../vault-proxy/grant.ts"]],
  ["hands/virtual/planted.ts", ["../../harnesses/harness.ts", "../../vault-proxy/grant.ts"]],
  [
    "harnesses/planted.ts",
    ["../gateway/config.ts", "../vault-proxy/grant.ts", "../hands/virtual/sandbox.ts", "../session-store/drivers/redis/open.ts"],
  ],
  [
    "harnesses/claude/planted.ts",
    ["../../session-store/ids.ts", "../../hands/hand.ts", "../host.ts", "../turn.ts", "../registry.ts", "../../gateway/config.ts"],
  ],
  ["gateway/planted.ts", ["../vault-proxy/grant.ts", "../test/promises.ts", "../hands/virtual/sandbox.ts", "../harnesses/claude/harness.ts"]],
  ["gateway/http/planted.ts", ["../../vault-proxy/grant.ts"]],
];

const ALLOWED: readonly (readonly [string, readonly string[]])[] = [
  ["hands/planted.ts", ["../session-store/ids.ts"]],
  ["harnesses/planted.ts", ["../session-store/ids.ts", "../hands/hand.ts"]],
  ["harnesses/claude/planted.ts", ["../harness.ts"]],
  ["gateway/planted.ts", ["../session-store/ids.ts", "../hands/hand.ts", "../harnesses/harness.ts"]],
];

interface Planted {
  readonly path: string;
  readonly imported: string;
}

const Report = z.object({
  summary: z.object({ changed: z.number(), unchanged: z.number() }),
  diagnostics: z.array(z.object({ category: z.string(), location: z.object({ path: z.string() }) })),
});

const plant = (table: typeof FORBIDDEN): readonly Planted[] =>
  table.flatMap(([file, targets]) => targets.map((imported, n) => ({ path: join(dirname(file), `${basename(file, ".ts")}-${n}.ts`), imported })));

/** Lays the files out under this project's biome.json, in a folder of their own, and gives those whose import was reported. */
function lint(planted: readonly Planted[]): { readonly looked: number; readonly reported: readonly Planted[] } {
  const folder = mkdtempSync(join(tmpdir(), "manyhands-borders-"));
  try {
    copyFileSync(join(ROOT, "biome.json"), join(folder, "biome.json"));
    for (const { path, imported } of planted) {
      mkdirSync(join(folder, dirname(path)), { recursive: true });
      writeFileSync(join(folder, path), `import * as planted from "${imported}";\n\nexport const name = planted;\n`);
    }
    const biome = join(ROOT, "node_modules", "@biomejs", "biome", "bin", "biome");
    const args = [biome, "lint", "--vcs-enabled=false", "--reporter=json", "--max-diagnostics=none", "."];
    const { stdout } = spawnSync(process.execPath, args, { cwd: folder, encoding: "utf8" });
    const { summary, diagnostics } = Report.parse(JSON.parse(stdout));
    const named = new Set(
      diagnostics.filter((each) => each.category === "lint/style/noRestrictedImports").map((each) => normalize(each.location.path)),
    );
    return { looked: summary.changed + summary.unchanged, reported: planted.filter(({ path }) => named.has(path)) };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

describe("borders", () => {
  proves("room:borders", "every import that a room may not make is reported, in every room, and every file was looked at", () => {
    const planted = plant(FORBIDDEN);
    const { looked, reported } = lint(planted);
    expect(looked).toBeGreaterThanOrEqual(planted.length);
    expect(reported).toEqual(planted);
  });

  test("the imports that a room may make are not reported", () => {
    const planted = plant(ALLOWED);
    const { looked, reported } = lint(planted);
    expect(looked).toBeGreaterThanOrEqual(planted.length);
    expect(reported).toEqual([]);
  });

  test("every room has a rule, and every rule of biome.json for a folder looks at files that are there", () => {
    const Rules = z.object({ overrides: z.array(z.object({ includes: z.array(z.string()) })) });
    const rules = Rules.parse(JSON.parse(readFileSync(join(ROOT, "biome.json"), "utf8"))).overrides.flatMap((each) => each.includes);
    for (const room of ["session-store", "vault-proxy", "hands", "harnesses", "gateway"]) expect(rules).toContain(`${room}/**`);
    const folders = rules.filter((rule) => /^[\w-]+(\/[\w-]+)*\/\*\*$/.test(rule)).map((rule) => rule.slice(0, -"/**".length));
    expect(folders.filter((folder) => countFiles(folder) === 0)).toEqual([]);
  });
});

function countFiles(folder: string): number {
  if (!existsSync(join(ROOT, folder))) return 0;
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile() && entry.name.endsWith(".ts"))
    .length;
}
