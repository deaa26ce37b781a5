// A program that can start no process more: the system's own limit, set while it runs and taken back again.

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { until } from "./until.ts";

const NOBODY = 65_534;
/** Of every Debian's util-linux. */
const PROGRAM = "prlimit";
/** The limit does not hold for root: a program that was started with this becomes nobody at SIGUSR2. What it has open stays open. */
const BECOMES_NOBODY = `process.on("SIGUSR2", () => { if (process.getuid() === 0) { process.setgid(${NOBODY}); process.setuid(${NOBODY}); } });`;
export const LIMITABLE = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(BECOMES_NOBODY)}` } as const;

const isRoot = (pid: number): boolean => /^Uid:\s+0\s/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));

export async function endProcesses(pid: number): Promise<void> {
  process.kill(pid, "SIGUSR2");
  await until(() => !isRoot(pid));
  limit(pid, "1:");
}

export function allowProcesses(pid: number): void {
  limit(pid, "4096:");
}

/** A user changes the limits of a program of its own. */
function limit(pid: number, processes: string): void {
  const user = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
  execFileSync(PROGRAM, [`--pid=${pid}`, `--nproc=${processes}`], user);
}
