// Images where no registry can be reached: a base of this machine's own Node, npm and Redis, and the product's Dockerfile built on it.

import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { cp, mkdir, mkdtemp, readdir, readFile, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { z } from "zod";
import { engine, ensureImage, IMAGE } from "./docker.ts";
import { ROOT } from "./process.ts";

const run = promisify(execFile);
export const BASE_IMAGE = "manyhands-test-base";
export const PRODUCT_IMAGE = "manyhands-test";
/** What the build needs of the packages that are for development. */
const BUILD_PACKAGES = ["typescript", "@typescript", "@types"];
const SOURCES = ["Dockerfile", "package.json", "package-lock.json", "tsconfig.json", "session-store", "vault-proxy", "hands", "harnesses", "gateway"];

const Step = z.object({ error: z.string() });
const Lock = z.object({ packages: z.record(z.string(), z.object({ dev: z.boolean().optional() })) });

/** What a public base has: on top of a hand's image (Node, a shell, this machine's libraries) npm and Redis. */
export async function buildBase(): Promise<void> {
  await ensureImage();
  const context = await mkdtemp(join(tmpdir(), "manyhands-base-"));
  try {
    const npm = dirname(dirname(await realpath((await run("sh", ["-c", "command -v npm"])).stdout.trim())));
    await cp(npm, join(context, "npm"), { recursive: true, verbatimSymlinks: true });
    await mkdir(join(context, "bin"));
    for (const name of ["redis-server", "redis-cli"]) await cp(await realpath(`/usr/bin/${name}`), join(context, "bin", name));
    await mkdir(join(context, "lib"));
    // Of Redis, and of the packages that are no plain JavaScript.
    const natives = (await readdir(join(ROOT, "node_modules/@libsql"))).map((name) => join(ROOT, "node_modules/@libsql", name, "index.node"));
    const programs = ["/usr/bin/redis-server", "/usr/bin/redis-cli", ...natives.filter((path) => path.endsWith("-gnu/index.node"))];
    const { stdout } = await run("ldd", programs);
    for (const [, path = ""] of stdout.matchAll(/=> (\/\S+)/g))
      await cp(await realpath(path), join(context, "lib", path.slice(path.lastIndexOf("/") + 1)));
    await writeFile(
      join(context, "Dockerfile"),
      [
        `FROM ${IMAGE}`,
        "USER 0:0",
        "COPY lib /usr/local/lib/",
        "COPY bin /usr/local/bin/",
        "COPY npm /usr/local/lib/node_modules/npm",
        "RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm",
        "ENV LD_LIBRARY_PATH=/usr/local/lib",
        "WORKDIR /",
      ].join("\n"),
    );
    await build(BASE_IMAGE, context, ["."], {});
  } finally {
    await rm(context, { recursive: true, force: true });
  }
}

/** The product's own Dockerfile, with the packages of this machine in its context: nothing is left for npm to fetch. */
export async function buildProduct(): Promise<void> {
  const lock = Lock.parse(JSON.parse(await readFile(join(ROOT, "node_modules/.package-lock.json"), "utf8")));
  // An optional package that could not be installed here is on the list all the same.
  const production = Object.entries(lock.packages)
    .filter(([path, { dev }]) => dev !== true && path.lastIndexOf("node_modules/") === 0 && existsSync(join(ROOT, path)))
    .map(([path]) => path);
  const forBuilding = BUILD_PACKAGES.map((name) => `node_modules/${name}`);
  const packages = [...production.filter((path) => !forBuilding.some((folder) => path.startsWith(`${folder}/`))), ...forBuilding];
  await build(PRODUCT_IMAGE, ROOT, [...SOURCES, "node_modules/.package-lock.json", ...packages], { BASE: BASE_IMAGE });
  // The build stage has no name and is in nobody's way but the disk's.
  await engine.pruneImages({ filters: JSON.stringify({ dangling: ["true"], label: ["manyhands.stage=build"] }) });
}

async function build(name: string, folder: string, paths: readonly string[], buildargs: Readonly<Record<string, string>>): Promise<void> {
  const tar = spawn("tar", ["--create", "--file=-", "--owner=0", "--group=0", "--hard-dereference", "-C", folder, ...paths], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const packed = once(tar, "close");
  const stream = await engine.buildImage(tar.stdout, { t: name, buildargs, rm: true, forcerm: true });
  const said = await new Promise<readonly unknown[]>((resolve, reject) => {
    engine.modem.followProgress(stream, (error: Error | null, output: unknown[]) => (error === null ? resolve(output) : reject(error)));
  });
  const [code] = await packed;
  if (code !== 0) throw new Error(`The context of the image ${name} could not be packed.`);
  const failed = said.flatMap((step) => Step.safeParse(step).data ?? []);
  if (failed.length > 0)
    throw new Error(`The image ${name} could not be built: ${failed.map(({ error }) => error).join(" ")}\n${JSON.stringify(said.slice(-20))}`);
}
