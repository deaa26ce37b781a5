import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openEmbeddedStore } from "../../session-store/drivers/embedded/driver.ts";
import type { SessionStore } from "../../session-store/store.ts";
import { describeStore } from "./session-store.suite.ts";

describeStore("embedded", async ({ leaseMs }) => {
  const dir = await mkdtemp(join(tmpdir(), "manyhands-store-"));
  let store = await openEmbeddedStore({ dir, leaseMs });
  const reopen = async (): Promise<SessionStore> => {
    await store.close();
    store = await openEmbeddedStore({ dir, leaseMs });
    return store;
  };
  const close = async () => {
    await store.close();
    await rm(dir, { recursive: true });
  };
  return { store, reopen, close };
});
