import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { dockerDriver } from "../../hands/docker/driver.ts";
import { connect } from "../../hands/docker/engine.ts";
import { handSuite } from "./hand.suite.ts";

const built = new URL("../../dist/hands/", import.meta.url);
const driver = await dockerDriver({
  engine: connect({ socketPath: "/var/run/docker.sock" }),
  host: "host_test",
  image: "manyhands-hand",
  limits: { memoryMb: 1024, pids: 256, cpus: 2, tmpMb: 256 },
  containersMax: 8,
  dataDir: mkdtempSync(join(tmpdir(), "hands-docker-")),
  log: pino({ level: "info" }),
  built,
});
handSuite(driver, (folder) => join(folder, "workspace"));
