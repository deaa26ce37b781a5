// What this machine can do at best: the measures that the product's figures are held against, taken in the same run.

import { open } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createClient } from "redis";
import { Pool } from "undici";
import { times } from "./figures.ts";

/** 1 KB written and fdatasynced, one after the other. */
export async function writeAndSync(folder: string, n: number): Promise<readonly number[]> {
  const file = await open(join(folder, "limit.bin"), "a");
  const kilobyte = Buffer.alloc(1024, 0x61);
  try {
    return await times(n, async () => {
      await file.write(kilobyte);
      await file.datasync();
      return undefined;
    });
  } finally {
    await file.close();
  }
}

/** A POST of 1 KB over a kept connection, answered at once. */
export async function loopbackPost(n: number): Promise<readonly number[]> {
  const server = createServer((req, res) => {
    req.resume();
    req.on("end", () => res.end("{}"));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const pool = new Pool(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, { connections: 1 });
  const body = "a".repeat(1024);
  try {
    return await times(n, async () => {
      const answer = await pool.request({ method: "POST", path: "/", body });
      await answer.body.text();
      return undefined;
    });
  } finally {
    await pool.close();
    server.close();
  }
}

/** One XADD of 1 KB at a time, with explicit ids. */
export async function rawXadd(url: string, n: number): Promise<readonly number[]> {
  const client = createClient({ url });
  client.on("error", () => {}); // The command that is awaited rejects; the event says nothing more.
  await client.connect();
  const field = "a".repeat(1024);
  let id = 0;
  try {
    return await times(n, async () => {
      id += 1;
      await client.xAdd("limit", `${id}-0`, { e: field });
      return undefined;
    });
  } finally {
    await client.del("limit");
    client.destroy();
  }
}
