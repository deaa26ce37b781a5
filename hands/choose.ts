// Which kind of sandbox this host has: containers where they are asked for or ready to use, the virtual one elsewhere.
//
//   H1  `docker` is a promise of a boundary: where it can't be kept the host does not start. `auto` takes containers only when the engine answers and
//       the image is there, and says in the log what it took and why.
//   H2  An engine that is on its way up, like this machine, is waited for where containers are asked for or hands in containers exist.

import type { Logger } from "pino";
import type { Config } from "./config.ts";
import { dockerDriver } from "./docker/driver.ts";
import { connect, type Engine, statusOf, within, worded } from "./docker/engine.ts";
import type { SandboxDriver } from "./sandbox.ts";
import { virtualDriver } from "./virtual/sandbox.ts";

const PROBE_MS = 2_000;
const ENGINE_WAIT_MS = 8_000;
const ENGINE_POLL_MS = 250;

/** Containers were asked for, and there can be none; the message says what to do. */
export class SandboxUnavailable extends Error {
  override readonly name = "SandboxUnavailable";
}

export interface ChoiceOptions {
  readonly config: Config;
  /** The hand host's id. */
  readonly host: string;
  /** The ledger has hands that are containers. */
  readonly hasContainers: boolean;
  readonly log: Logger;
}

export async function chooseDriver({ config, host, hasContainers, log }: ChoiceOptions): Promise<SandboxDriver> {
  const { sandbox, docker, dataDir } = config;
  if (sandbox === "virtual") return chosen(virtualDriver(), "as configured", log);
  const engine = connect(docker.engine);
  const wanting = await whatIsWanting(engine, docker.image, sandbox === "docker" || hasContainers ? ENGINE_WAIT_MS : 0);
  if (wanting === null) {
    const { image, limits, containersMax, vaultUrl } = docker;
    return chosen(await dockerDriver({ engine, host, image, limits, containersMax, dataDir, log, vaultUrl }), `image ${image}`, log);
  }
  if (sandbox === "docker") throw new SandboxUnavailable(`MANYHANDS_SANDBOX is docker, and ${wanting}`);
  return chosen(virtualDriver(), wanting, log);
}

function chosen(driver: SandboxDriver, why: string, log: Logger): SandboxDriver {
  log.info({ sandbox: driver.name, why }, "sandbox.chosen");
  return driver;
}

/** Null: containers can be had. H1 H2 */
async function whatIsWanting(engine: Engine, image: string, waitMs: number): Promise<string | null> {
  const deadline = performance.now() + waitMs;
  for (;;) {
    try {
      await within(PROBE_MS, () => engine.getImage(image).inspect());
      return null;
    } catch (error) {
      if (statusOf(error) === 404) return `the image ${image} is not there: "npm run image" makes it from this machine's own packages`;
      const says = worded(error);
      if (performance.now() >= deadline) return `${says}: start it, or name it in DOCKER_HOST`;
    }
    await new Promise((resolve) => setTimeout(resolve, ENGINE_POLL_MS));
  }
}
