// Calls of tools at one hand host: once each, by the newest fence, with whatever the ledger has (hands/calls.ts).

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { Calls } from "../../hands/calls.ts";
import type { Holder, Outcome } from "../../hands/hand.ts";
import { type HandRow, Ledger } from "../../hands/ledger.ts";
import type { Sandbox, SandboxCall } from "../../hands/sandbox.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";

const session = mintSession();
const holder = (fence: number): Holder => ({ session, fence: fence as Fence });
const row: HandRow = { hand: "h", session, driver: "test", folder: "h", created: 1, holder: session, fence: 1 as Fence, state: "live", server: null };
const ran: Outcome = { type: "done", content: [{ type: "text", text: "ran" }], isError: false };
const bash = (id: string) => ({ id, name: "bash", input: { command: "x" } });
const read = (id: string) => ({ id, name: "read", input: { file_path: "x" } });
const write = (id: string) => ({ id, name: "write", input: { file_path: "x", content: "x" } });

/** A sandbox whose calls end when the test says so. */
class Slow implements Sandbox {
  readonly started: string[] = [];
  readonly #ends = new Map<string, (outcome: Outcome) => void>();

  run(call: SandboxCall): Promise<Outcome> {
    this.started.push(call.id);
    return new Promise((resolve) => this.#ends.set(call.id, resolve));
  }

  end(id: string, outcome: Outcome = ran): void {
    this.#ends.get(id)?.(outcome);
  }

  cancel(id: string, reason: string): void {
    this.end(id, { type: "failed", reason });
  }

  async stop(): Promise<void> {}

  idleSince(): null {
    return null;
  }
}

let folder: string;
let ledger: Ledger;
let sandbox: Slow;
let calls: Calls;

function open(): void {
  ledger = Ledger.open(folder, (error) => {
    throw error;
  });
  sandbox = new Slow();
  calls = new Calls(ledger, () => sandbox);
}

async function reopen(): Promise<void> {
  await ledger.close();
  open();
}

async function started(...ids: string[]): Promise<void> {
  await expect.poll(() => sandbox.started, { timeout: 5_000 }).toEqual(ids);
}

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "calls-"));
  open();
  await ledger.addHand(row);
});
afterEach(async () => {
  await ledger.close();
  await rm(folder, { recursive: true, force: true });
});

it("has a durable row before a tool starts that may not run twice", async () => {
  const asked = calls.execute("h", holder(1), bash("a"), false);
  await started("a");
  expect(ledger.call("h", "a")).toEqual({ state: "running", isThisBoot: true });
  sandbox.end("a");
  expect(await asked).toEqual(ran);
  expect(ledger.call("h", "a")).toEqual({ state: "over", outcome: ran });
});

it("runs again what was running before a restart only if asked to and harmless", async () => {
  for (const id of ["bash", "read", "write", "told"]) await ledger.started("h", holder(1), id);
  await reopen();
  expect(await calls.execute("h", holder(1), bash("bash"), true)).toMatchObject({ type: "unknown" });
  expect(await calls.execute("h", holder(1), read("told"), false)).toMatchObject({ type: "unknown" });
  expect(sandbox.started).toEqual([]);
  const again = [calls.execute("h", holder(1), read("read"), true), calls.execute("h", holder(1), write("write"), true)];
  await started("read");
  sandbox.end("read");
  await started("read", "write");
  sandbox.end("write");
  expect(await Promise.all(again)).toEqual([ran, ran]);
});

it("lets read-only calls overlap, and nothing else", async () => {
  const all = [read("r1"), read("r2"), bash("b1"), read("r3"), read("r4"), bash("b2")].map((use) => calls.execute("h", holder(1), use, false));
  await started("r1", "r2");
  sandbox.end("r2");
  sandbox.end("r1");
  await started("r1", "r2", "b1");
  sandbox.end("b1");
  await started("r1", "r2", "b1", "r3", "r4");
  sandbox.end("r3");
  sandbox.end("r4");
  await started("r1", "r2", "b1", "r3", "r4", "b2");
  sandbox.end("b2");
  expect(await Promise.all(all)).toEqual([ran, ran, ran, ran, ran, ran]);
});

it("refuses what waits under an overtaken fence, and starts it if the newer holder asks for it too", async () => {
  const blocker = calls.execute("h", holder(1), bash("a"), false);
  const overtaken = calls.execute("h", holder(1), bash("b"), false);
  const asked = calls.execute("h", holder(1), bash("c"), false);
  const refused = expect(overtaken).rejects.toMatchObject({ code: "fenced" });
  await started("a");
  await calls.announce("h", holder(2));
  const again = calls.execute("h", holder(2), bash("c"), false);
  sandbox.end("a");
  await refused;
  await started("a", "c");
  sandbox.end("c");
  expect(await Promise.all([blocker, asked, again])).toEqual([ran, ran, ran]);
  expect(ledger.call("h", "b")).toBeUndefined();
});

it("remembers the newest fence of a call over a restart", async () => {
  const asked = calls.execute("h", holder(4), bash("a"), false);
  await started("a");
  sandbox.end("a");
  await asked;
  await reopen();
  await expect(calls.execute("h", holder(3), bash("b"), false)).rejects.toMatchObject({ code: "fenced" });
});

it("ends everything as failed when it is told to, and starts nothing after", async () => {
  const all = [bash("a"), bash("b")].map((use) => calls.execute("h", holder(1), use, false));
  await started("a");
  calls.close();
  await calls.end(ledger.hands(), "the host ends");
  expect(await Promise.all(all)).toEqual([
    { type: "failed", reason: "the host ends while it ran" },
    { type: "failed", reason: "the host ends, before it started" },
  ]);
  await expect(calls.execute("h", holder(1), bash("c"), false)).rejects.toMatchObject({ code: "shutting_down" });
});
