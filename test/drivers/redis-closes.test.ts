// A Redis that accepts every connection and closes it: it is asked less and less often, and not by all at the same moment.

import { createServer } from "node:net";
import { test } from "vitest";
import { Bells } from "../../session-store/drivers/redis/bells.ts";
import { until } from "../support/until.ts";

const LOOKED_MS = 3_000;

test.concurrent.for(["at once", "when it is asked something"])(
  "a server that closes %s is tried with growing pauses",
  async (when, { expect, onTestFinished }) => {
    const tries: number[] = [];
    const server = createServer((socket) => {
      tries.push(performance.now());
      socket.on("error", () => {});
      if (when === "at once") socket.destroy();
      else socket.once("data", () => socket.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("no port");
    const said: string[] = [];
    const hear = (_: object, message: string) => void said.push(message);
    const bells = new Bells(`redis://127.0.0.1:${address.port}`, { info: hear, warn: hear, error: hear });
    onTestFinished(async () => {
      await bells.close();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    });
    const from = performance.now();
    await until(() => performance.now() - from > LOOKED_MS);
    const pauses = tries.slice(1).map((at, n) => at - (tries[n] ?? 0));
    expect(tries.length).toBeGreaterThan(2);
    expect(tries.length).toBeLessThan(15);
    expect(pauses.at(-1)).toBeGreaterThan(pauses[0] ?? Number.POSITIVE_INFINITY);
    expect(said).toEqual(["connection.lost"]);
    await expect(bells.listen("channel", () => {})).rejects.toMatchObject({ code: "store_busy" });
  },
);
