// Named points of a turn at which a test holds a process, to kill it or another one there.
//
//   F1  Without NODE_ENV=test a fault point does nothing; the process entry decides that, once.

/** The points, in the order in which a turn meets them. */
const FAULT_POINTS = ["stored", "taken", "model-streaming", "reply-stored", "tool-running", "result-stored", "before-finish", "recovering"] as const;
export type FaultPointName = (typeof FAULT_POINTS)[number];

/** Resolves at once unless the process is armed for `name`; then it reports and waits for SIGUSR2. */
export type FaultPoint = (name: FaultPointName) => Promise<void>;

export const noFault: FaultPoint = async () => {};

/** Arms one point (`name`, or `name:3` for its third passage). It holds once, then never again in this process. F1 */
export function armFaultPoint(spec: string, report: (name: FaultPointName) => void): FaultPoint {
  const [wanted, count = "1"] = spec.split(":");
  let left = Number(count);
  return async (name) => {
    if (name !== wanted || left <= 0) return;
    left -= 1;
    if (left > 0) return;
    const released = new Promise<void>((resolve) => process.once("SIGUSR2", () => resolve()));
    report(name);
    await released;
  };
}
