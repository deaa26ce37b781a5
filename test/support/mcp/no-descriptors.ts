// A program that has used up its file descriptors when it starts a child, and has given them back when it starts the next one.

import { closeSync, openSync } from "node:fs";
import { Children } from "../../../hands/servers/children.ts";

const children = new Children("no-descriptors", { PATH: process.env.PATH ?? "" });
const start = () => children.start("hand", { command: process.execPath, args: ["--version"], env: {}, cwd: null });

const open: number[] = [];
try {
  for (;;) open.push(openSync("/dev/null", "r"));
} catch {
  // That was the last one.
}
const first = await start().ended;
for (const descriptor of open) closeSync(descriptor);
const second = await start().ended;
process.stdout.write(JSON.stringify({ first, second }));
