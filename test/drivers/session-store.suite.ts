// The contract of a session store as one suite: what store.ts, due.ts and documents.ts promise, run against every driver.

import { describe, onTestFinished } from "vitest";
import { describeDocuments } from "./suite/documents.ts";
import { describeDueSet } from "./suite/due.ts";
import { describeInterleavings } from "./suite/interleavings.ts";
import type { MakeStore, Open } from "./suite/kit.ts";
import { describeLog } from "./suite/log.ts";
import { describeReading } from "./suite/reading.ts";
import { describeReceiving } from "./suite/receiving.ts";
import { describeSessions } from "./suite/sessions.ts";

/** Long enough that no lease runs out in a case that is not about that. */
const LEASE_MS = 30_000;

/** Runs every promise of the store against the stores that `make` gives. */
export function describeStore(name: string, make: MakeStore): void {
  const open: Open = async (options) => {
    const opened = await make({ leaseMs: LEASE_MS, ...options });
    onTestFinished(() => opened.close());
    return opened;
  };
  describe(`the ${name} store`, () => {
    describe("the log", () => describeLog(open));
    describe("receiving", () => describeReceiving(open));
    describe("sessions", () => describeSessions(open));
    describe("the due-set", () => describeDueSet(open));
    describe("reading and following", () => describeReading(open));
    describe("documents", () => describeDocuments(open));
    describe("interleavings", () => describeInterleavings(open));
  });
}
