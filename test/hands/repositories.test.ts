// What becomes of a clone's output, and of repositories where there is no git.

import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { cloneAll, remoteOf } from "../../hands/docker/repositories.ts";
import type { Outcome, RepositoryWanted } from "../../hands/hand.ts";
import { HandHost } from "../../hands/host.ts";
import { Ledger } from "../../hands/ledger.ts";
import { virtualDriver } from "../../hands/virtual/sandbox.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";

const wanted: RepositoryWanted = {
  id: "sesrsc_1",
  url: "https://github.com/acme/site",
  mount_path: "/workspace/it's $(here)",
  checkout: { type: "branch", name: "a'b" },
};
const says = (text: string): Outcome => ({ type: "done", content: [{ type: "text", text }], isError: false });

test.each([
  [says("\nmanyhands-repository cloned\n"), { type: "cloned", id: "sesrsc_1" }],
  [
    says("remote: manyhands: no token (status 401) [repository_authentication_error]\nfatal: unable\n\nmanyhands-repository failed\n"),
    "repository_authentication_error",
  ],
  [says("remote: manyhands: no [repository_forbidden_error]\n\nmanyhands-repository failed"), "repository_forbidden_error"],
  [says("remote: it says [repository_bogus_error]\nfatal: broken\n\nmanyhands-repository failed"), "repository_clone_error"],
  [says("fatal: invalid reference: a'b\n\nmanyhands-repository checkout"), "repository_checkout_error"],
  [says("\nmanyhands-repository occupied"), "repository_clone_error"],
  [says("Timed out after 300000 ms."), "repository_clone_error"],
  [{ type: "failed", reason: "the sandbox could not be started: no engine" } as const, "repository_clone_error"],
])("an outcome %j is told as it is", async (outcome, expected) => {
  const [prepared] = await cloneAll([wanted], async () => outcome);
  if (typeof expected === "object") return expect(prepared).toEqual(expected);
  expect(prepared).toMatchObject({ type: "failed", id: "sesrsc_1", error: expected });
  expect(prepared).toHaveProperty(
    "message",
    expect.stringMatching(/^The repository https:\/\/github\.com\/acme\/site is not in \/workspace\/it's \$\(here\): \S/),
  );
});

test("the script is one that bash reads, whatever the names are, and its remote holds an address alone", async () => {
  let command = "";
  await cloneAll([wanted], async ({ input }) => {
    command = (input as { command: string }).command;
    return says("");
  });
  await promisify(execFile)("bash", ["-n", "-c", command]);
  expect(command).toContain("at='/workspace/it'\\''s $(here)'");
  expect(remoteOf(wanted.url)).toBe("http://127.0.0.1:3128/git/github.com/acme/site");
});

test("a virtual sandbox has no git, and says what helps", async () => {
  const dataDir = await mkdtemp(join(tmpdir(), "hands-"));
  const ledger = Ledger.open(dataDir, (error) => {
    throw error;
  });
  const host = new HandHost({ ledger, driver: virtualDriver(), dataDir, log: pino({ level: "silent" }) });
  onTestFinished(async () => {
    await host.stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  const holder = { session: mintSession(), fence: 1 as Fence };
  const { hand } = await host.provision(holder);
  const prepared = await host.prepare(hand, holder, { repositories: [wanted], wayOut: undefined });
  expect(prepared).toEqual([
    { type: "failed", id: "sesrsc_1", error: "repository_clone_error", message: expect.stringContaining("MANYHANDS_SANDBOX=docker") },
  ]);
  await expect(host.prepare(hand, { ...holder, fence: 0 as Fence }, { repositories: [wanted], wayOut: undefined })).rejects.toMatchObject({
    code: "fenced",
  });
});
