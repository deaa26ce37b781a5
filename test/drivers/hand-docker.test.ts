import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { ensureImage, IMAGE_MS, makeRig } from "../support/docker.ts";
import { isThere, needs } from "../support/real-part.ts";
import { handSuite } from "./hand.suite.ts";

const describeDocker = needs("docker");

// The suite takes a driver that exists, and one that is skipped needs none.
if (isThere("docker")) {
  const rig = await makeRig();
  describeDocker("with a container engine", () => {
    beforeAll(ensureImage, IMAGE_MS);
    afterAll(() => rig.clean());
    handSuite(rig.driver, (folder) => join(folder, "workspace"));
  });
} else describeDocker("with a container engine", () => {});
