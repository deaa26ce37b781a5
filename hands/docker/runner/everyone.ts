// Ending everything that this runner's user runs in its container.
//
//   Y1  It acts only inside of a container's own process namespace: there, and nowhere else, a process that was started from outside has no parent.
//   Y2  The kernel ends all of them in one step, whatever they ignore and whichever session they moved to; a fork at that moment ends too.

import { readdirSync, readFileSync, statSync } from "node:fs";

const GONE_MS = 2_000;
const POLL_MS = 2;

/** Throws where this program is not the runner of a container. Y1 */
export function assertInContainer(): void {
  if (process.ppid !== 0 || process.pid === 1) throw new Error("the runner runs in a container only");
  if (process.getuid?.() === 0) throw new Error("the runner never runs as root");
}

/** Ends every other process of this user; true when none is left. Y2 */
export async function endEveryone(): Promise<boolean> {
  assertInContainer();
  const deadline = performance.now() + GONE_MS;
  for (;;) {
    try {
      process.kill(-1, "SIGKILL");
    } catch (error) {
      if (!(error instanceof Error && "code" in error && (error.code === "ESRCH" || error.code === "EPERM"))) throw error;
    }
    if (others().length === 0) return true;
    if (performance.now() > deadline) return false;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** This user's other processes that are not dead already. */
function others(): string[] {
  const mine = process.getuid?.();
  return readdirSync("/proc").filter((name) => {
    if (!/^\d+$/.test(name) || name === String(process.pid)) return false;
    try {
      // After the last parenthesis, because a program's name may hold anything.
      return statSync(`/proc/${name}`).uid === mine && !/^.*\) [ZX]/s.test(readFileSync(`/proc/${name}/stat`, "latin1"));
    } catch {
      // It ended meanwhile.
      return false;
    }
  });
}

/** How many processes of this container the kernel has ended for want of memory; null where it does not say. */
export function memoryKills(): number | null {
  for (const file of ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]) {
    try {
      const count = /^oom_kill (\d+)$/m.exec(readFileSync(file, "latin1"))?.[1];
      if (count !== undefined) return Number(count);
    } catch {
      // The other kind of control groups.
    }
  }
  return null;
}
