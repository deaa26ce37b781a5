// What the official conformance suite starts, once for each scenario and all of them at the same moment: it loads nothing, and hands the scenario on to
// the one program that plays them (client-host.ts).

import { connect } from "node:net";
import { createInterface } from "node:readline";

const host = connect(Number(process.env.MANYHANDS_CONFORMANCE_HOST), "127.0.0.1");
const { MCP_CONFORMANCE_SCENARIO: scenario = "", MCP_CONFORMANCE_CONTEXT: context = "{}" } = process.env;
host.write(`${JSON.stringify({ url: process.argv.at(-1), scenario, context })}\n`);

let code = 1;
for await (const line of createInterface({ input: host })) {
  const said = JSON.parse(line) as { readonly line?: string; readonly error?: string; readonly isOver?: boolean };
  if (said.line !== undefined) process.stdout.write(`${said.line}\n`);
  if (said.error !== undefined) process.stderr.write(`${said.error}\n`);
  if (said.isOver === true) code = 0;
}
process.exit(code);
