import { defineConfig } from "vitest/config";

/** Tests of a whole server or program over real sockets, too long for a look before each commit. */
const DOORS = [
  "test/gateway/{mcp*,connect,stream,events,openapi,mutation,idempotency,vaults,launch}.test.ts",
  "test/vault-proxy/{main,model,mcp*,oauth*,validate,connect*,egress*}.test.ts",
];

/** Of the drivers, what shares nothing with the others: no engine, no port, no store. */
const APART = ["test/drivers/{server-*,hand-relay,vault-refresh}.test.ts"];

const project = (name: string, include: string[], options: { timeoutMs: number; isSerial: boolean; exclude?: string[] }) => ({
  test: {
    name,
    include,
    exclude: options.exclude ?? [],
    testTimeout: options.timeoutMs,
    hookTimeout: options.timeoutMs,
    fileParallelism: !options.isSerial,
    pool: "forks" as const,
  },
});

export default defineConfig({
  test: {
    projects: [
      project("quick", ["test/{session-store,hands,harnesses,vault-proxy,gateway,support,demo}/**/*.test.ts", "test/*.test.ts"], {
        timeoutMs: 10_000,
        isSerial: false,
        exclude: DOORS,
      }),
      project("doors", DOORS, { timeoutMs: 20_000, isSerial: false }),
      project("drivers", ["test/drivers/**/*.test.ts"], { timeoutMs: 60_000, isSerial: true, exclude: APART }),
      // They mostly wait (for leases, limits, programs that start): some at a time.
      project("e2e", ["test/e2e/**/*.test.ts", "test/chaos/**/*.test.ts", ...APART], { timeoutMs: 120_000, isSerial: false }),
      ...(process.env.PROOF ? [project("proof", ["test/proof/**/*.test.ts"], { timeoutMs: 3_600_000, isSerial: true })] : []),
    ],
    maxWorkers: 3,
    reporters: ["default"],
  },
});
