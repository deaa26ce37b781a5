// How a program of ours ends: once, in order, and within a time limit, whatever asked for it.
//
//   X1  The first of SIGTERM, SIGINT and the closed parent pipe starts the end; later ones change nothing.
//   X2  It ends with 0 when everything was given back, with 1 when something threw or END_MS were over.
//   X3  An error that nobody caught is logged and ends the process with 1: the leases run out, and another one goes on.

import type { Logger } from "pino";

const END_MS = 4_500;

export interface Ending {
  readonly log: Logger;
  /** Standard input is the parent's pipe: when it closes, nobody is left to serve. */
  readonly parentPipe: boolean;
  /** Gives back what the program holds. */
  readonly stop: () => Promise<void>;
}

/** X3; for the time before there is anything to give back, too. */
export function endOnBugs(log: Logger): void {
  const fail = (error: unknown) => {
    log.fatal({ err: error }, "process.failed");
    process.exit(1);
  };
  process.on("uncaughtException", fail);
  process.on("unhandledRejection", fail);
}

/** X1 X2 */
export function endWhenAsked({ log, parentPipe, stop }: Ending): void {
  let isEnding = false;
  const end = async (reason: string): Promise<void> => {
    if (isEnding) return;
    isEnding = true;
    log.info({ reason }, "process.stopping");
    setTimeout(() => {
      log.error({ ms: END_MS }, "process.stop_timed_out");
      process.exit(1);
    }, END_MS);
    try {
      await stop();
    } catch (error) {
      log.error({ err: error }, "process.stop_failed");
      process.exit(1);
    }
    log.info({}, "process.stopped");
    process.exit(0);
  };
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.on(signal, () => void end(signal));
  if (!parentPipe) return;
  const gone = () => void end("parent pipe closed");
  process.stdin.on("end", gone).on("error", gone).on("close", gone).resume();
}
