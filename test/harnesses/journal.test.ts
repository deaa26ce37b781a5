// The journal of a lease that is lost before it was read: nothing of it stays behind.

import { expect, test } from "vitest";
import { Journal } from "../../harnesses/journal.ts";
import type { Tenure } from "../../harnesses/writer.ts";
import type { Lease } from "../../session-store/due.ts";
import type { Fence, SessionId } from "../../session-store/ids.ts";
import { position } from "../../session-store/ids.ts";
import { Refusal } from "../../session-store/refusal.ts";
import type { SessionStore } from "../../session-store/store.ts";

const LEASE: Lease = { id: "sesn_1" as SessionId, fence: 1 as Fence, head: position(1), attempt: 1, leaseMs: 1_000 };

test.each(["before", "after"] as const)("a bell that is heard %s the log turns out to be unreadable is not heard any more", async (order) => {
  let heard = 0;
  let listenNow = () => {};
  const listening = new Promise<void>((resolve) => {
    listenNow = resolve;
  });
  const store = {
    async listen() {
      await listening;
      heard += 1;
      return () => {
        heard -= 1;
      };
    },
    async getEvents() {
      if (order === "before") await expect.poll(() => heard).toBe(1);
      throw new Refusal("session_not_found");
    },
  } as unknown as SessionStore;
  const tenure: Tenure = { signal: new AbortController().signal, isAlive: () => true, lose: () => {} };
  const journal = new Journal(store, LEASE, tenure, { onNews: () => {} });
  if (order === "before") listenNow();
  await expect(journal.open()).rejects.toMatchObject({ code: "session_not_found" });
  journal.close();
  listenNow();
  await listening;
  await new Promise((resolve) => setImmediate(resolve));
  expect(heard).toBe(0);
});
