import { join } from "node:path";
import { virtualDriver } from "../../hands/virtual/sandbox.ts";
import { handSuite } from "./hand.suite.ts";

// A thread starts from built JavaScript; the sandbox's own side runs from source.
const thread = new URL("../../dist/hands/virtual/thread.js", import.meta.url);

handSuite(virtualDriver(thread), (folder) => join(folder, "workspace"));
