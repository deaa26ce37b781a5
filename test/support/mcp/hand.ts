// A server's hand without a host around it, for tests of the hand itself.

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Logger, pino } from "pino";
import type { ListAsk, Outcome } from "../../../hands/hand.ts";
import { ArgumentChecks } from "../../../hands/servers/argument-checks.ts";
import type { Times } from "../../../hands/servers/call-limits.ts";
import { Children, type Command } from "../../../hands/servers/children.ts";
import type { Where } from "../../../hands/servers/connection.ts";
import { ServerHand } from "../../../hands/servers/hand.ts";
import { Reach } from "../../../hands/servers/reach.ts";
import { mint } from "../../../session-store/ids.ts";
import { ROOT } from "../process.ts";

const TIMES: Times = { connectMs: 3_000, idleMs: 5_000, totalMs: 20_000 };
const BASE = { PATH: process.env.PATH ?? "", HOME: process.env.HOME ?? "" };

/** A tool asked for again now, with time enough. */
export const FRESH: ListAsk = { known: null, waitMs: 10_000, isFresh: true };

export interface OpenHand {
  readonly hand: ServerHand;
  readonly logged: readonly Record<string, unknown>[];
  call(tool: string, input?: object, id?: string): Promise<Outcome>;
}

const checks = new ArgumentChecks(pino({ level: "error" }), pathToFileURL(join(ROOT, "dist/hands/servers/argument-thread.js")));
const opened: ServerHand[] = [];
const reaches: Reach[] = [];

/** For `afterEach`. */
export async function closeHands(): Promise<void> {
  await Promise.all(opened.splice(0).map((hand) => hand.stop("the test is over")));
  await Promise.all(reaches.splice(0).map((reach) => reach.close()));
  await checks.stop();
}

function openAt(where: Where | null, times: Partial<Times>): OpenHand {
  const logged: Record<string, unknown>[] = [];
  const log: Logger = pino({ level: "debug" }, { write: (line: string) => logged.push(JSON.parse(line) as Record<string, unknown>) });
  const keep = async (id: string) => `All of it is in ${id}.`;
  const hand = new ServerHand({ name: "thing", hand: mint("hand"), where, times: { ...TIMES, ...times }, log, checks, keep });
  opened.push(hand);
  return { hand, logged, call: (tool, input = {}, id = mint("call")) => hand.run({ id, tool, input }) };
}

export function openUrl(url: string, times: Partial<Times> = {}, internalHosts: readonly string[] = ["*"]): OpenHand {
  const reach = new Reach(internalHosts, times.connectMs ?? TIMES.connectMs);
  reaches.push(reach);
  return openAt({ type: "url", url: new URL(url), fetch: reach.fetch }, times);
}

const HOST = mint("host");
const children = new Children(HOST, BASE);

export function openCommand(command: Partial<Command>, times: Partial<Times> = {}): OpenHand {
  const whole = { command: process.execPath, args: [], env: {}, cwd: null, ...command };
  const hand = mint("hand");
  return openAt({ type: "command", secrets: Object.values(whole.env), start: () => children.start(hand, whole) }, times);
}

const PROGRAM = join(ROOT, "dist/test/support/mcp/stdio.js");

/** The scripted server of stdio.ts. */
export const stdio = (mode: string): Partial<Command> => ({ args: [PROGRAM, mode] });
/** The same, behind two shells that do not hand on signals. */
export const wrapped = (mode: string): Partial<Command> => ({
  command: "/bin/sh",
  args: ["-c", `sh -c '"${process.execPath}" "${PROGRAM}" ${mode}; true'; true`],
});

export const textOf = (outcome: Outcome): string =>
  outcome.type === "done"
    ? outcome.content.map((block) => (block.type === "text" ? block.text : `<${block.type}>`)).join("|")
    : `${outcome.type}: ${outcome.reason}`;
