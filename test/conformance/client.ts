// What the official conformance suite starts, once for each scenario and all of them at the same moment: it waits for its turn before it loads anything
// (suite.ts gives turns), so that a machine of two cores does not run forty programs beside each other.

import { once } from "node:events";
import { connect } from "node:net";

const port = Number(process.env.MANYHANDS_CONFORMANCE_TURNS ?? "");
if (port > 0) {
  const turn = connect(port, "127.0.0.1");
  await once(turn, "data");
  // The turn ends with this process.
  turn.unref();
}
await import("./client-scenarios.ts");
