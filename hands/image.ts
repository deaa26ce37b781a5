// The command `manyhands image`: makes the image of a hand from this machine's own packages and gives it to the engine.

import { ConfigError, readConfig } from "./config.ts";
import { connect, statusOf, within, worded } from "./docker/engine.ts";
import { buildImage, ImageError } from "./docker/image.ts";

const PING_MS = 5_000;

/** Gives the exit code. */
export async function makeImage(): Promise<number> {
  try {
    const { docker } = readConfig();
    const engine = connect(docker.engine);
    await within(PING_MS, () => engine.ping());
    process.stdout.write(`making ${docker.image} from this machine's packages …\n`);
    const { id, files, missed } = await buildImage(engine, docker.image);
    process.stdout.write(`${docker.image} is there: ${id.slice(0, 19)}, ${files} files of this machine.\n`);
    if (missed.length > 0) process.stdout.write(`Left out, because they are not installed here: ${missed.join(", ")}.\n`);
    return 0;
  } catch (error) {
    process.stderr.write(`manyhands image: ${saysOf(error)}\n`);
    return error instanceof ConfigError ? 2 : 1;
  }
}

function saysOf(error: unknown): string {
  if (error instanceof ConfigError || error instanceof ImageError) return error.message;
  const says = worded(error);
  return statusOf(error) === null ? `${says}: start it, or name it in DOCKER_HOST` : says;
}
