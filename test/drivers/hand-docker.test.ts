import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { ensureImage, IMAGE_MS, makeRig } from "../support/docker.ts";
import { needs } from "../support/real-part.ts";
import { handSuite } from "./hand.suite.ts";

const describeDocker = needs("docker");

if (describeDocker !== undefined) {
  const rig = await makeRig();
  describeDocker("with a container engine", () => {
    beforeAll(ensureImage, IMAGE_MS);
    afterAll(() => rig.clean());
    handSuite(rig.driver, (folder) => join(folder, "workspace"));
  });
}
