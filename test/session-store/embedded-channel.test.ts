// The way to the store's thread (session-store/drivers/embedded/channel.ts), with threads that misbehave.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Channel } from "../../session-store/drivers/embedded/channel.ts";

const OPTIONS = { dir: "", leaseMs: 1_000, lockWaitMs: 0, synchronous: "FULL", pagesMax: null } as const;

/** Opens a channel to a thread that does what `source` says once it is ready. */
async function openTo(source: string) {
  const dir = await mkdtemp(join(tmpdir(), "manyhands-channel-"));
  const file = join(dir, "thread.mjs");
  await writeFile(file, `import { parentPort } from "node:worker_threads";\n${source}`);
  const fatal: Error[] = [];
  const channel = await Channel.open(file, OPTIONS, { onFatal: (error) => fatal.push(error), onRings: () => {} });
  onTestFinished(async () => {
    await channel.close();
    await rm(dir, { recursive: true });
  });
  return { channel, fatal };
}
const READY = `parentPort.postMessage({ type: "ready" });`;

test("a write that gets no answer in time is in doubt, a read is busy", async () => {
  const { channel, fatal } = await openTo(`${READY} parentPort.on("message", ({ name }) => { if (name === "close") parentPort.close(); });`);
  await expect(channel.ask("wake", { id: "sesn_1" }, { deadlineMs: 50 })).rejects.toMatchObject({ code: "store_in_doubt" });
  await expect(channel.ask("getSession", { id: "sesn_1" }, { deadlineMs: 50 })).rejects.toMatchObject({ code: "store_busy" });
  await expect(channel.ask("ping", null, { deadlineMs: 50 })).rejects.toMatchObject({ code: "store_busy" });
  expect(fatal).toEqual([]);
});

test("calls whose time is over still count as queued until the thread is done with them", async () => {
  const { channel } = await openTo(`${READY} parentPort.on("message", ({ name }) => { if (name === "close") parentPort.close(); });`);
  const late = Array.from({ length: 10_000 }, () => channel.ask("wake", { id: "sesn_1" }, { deadlineMs: 50 }).catch(({ code }) => code));
  expect(new Set(await Promise.all(late))).toEqual(new Set(["store_in_doubt"]));
  await expect(channel.ask("wake", { id: "sesn_1" })).rejects.toMatchObject({ code: "store_busy" });
});

test("bytes on their way are bounded too", async () => {
  const { channel } = await openTo(`${READY} parentPort.on("message", ({ name }) => { if (name === "close") parentPort.close(); });`);
  const first = channel.ask("ping", null, { bytes: 200_000_000, deadlineMs: 50 });
  await expect(channel.ask("ping", null, { bytes: 100_000_000 })).rejects.toMatchObject({ code: "store_busy" });
  await expect(first).rejects.toMatchObject({ code: "store_busy" });
});

test("a thread that throws is fatal: what waits is in doubt, what comes is refused, and it is told once", async () => {
  const { channel, fatal } = await openTo(`${READY} parentPort.on("message", () => { throw new Error("broken"); });`);
  await expect(channel.ask("wake", { id: "sesn_1" })).rejects.toMatchObject({ code: "store_in_doubt" });
  await expect(channel.ask("wake", { id: "sesn_1" })).rejects.toMatchObject({ code: "store_unfit" });
  await channel.close();
  expect(fatal).toMatchObject([{ message: "The embedded store failed: broken" }]);
});

test("a thread that ends is fatal", async () => {
  const { channel, fatal } = await openTo(`${READY} parentPort.on("message", () => process.exit(0));`);
  await expect(channel.ask("wake", { id: "sesn_1" })).rejects.toMatchObject({ code: "store_in_doubt" });
  expect(fatal).toMatchObject([{ message: "The embedded store failed: its thread ended" }]);
});

test("a store that can't be opened is refused with the reason, and a thread that dies at its start too", async () => {
  await expect(openTo(`parentPort.postMessage({ type: "unfit", says: "no room" });`)).rejects.toMatchObject({
    code: "store_unfit",
    message: "no room",
  });
  await expect(openTo(`throw new Error("no thread");`)).rejects.toMatchObject({ code: "store_unfit", message: expect.stringContaining("no thread") });
  await expect(openTo("process.exit(1);")).rejects.toMatchObject({ code: "store_unfit" });
});
