import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Tests of a whole server or program over real sockets, too long for a look before each commit. */
const DOORS = [
  "test/gateway/{mcp*,connect,stream,events,openapi,mutation,idempotency,vaults,launch}.test.ts",
  "test/vault-proxy/{main,model,mcp*,oauth*,validate,connect*,egress*}.test.ts",
];

/** Of the drivers, what shares nothing with the others: each has processes, ports and folders of its own. */
const APART = ["test/drivers/{server-*,hand-relay,vault-*,redis*,embedded,hand-host,hand-virtual}.test.ts"];

/** Files that take minutes begin first, so that nobody waits for one of them in the end. */
const LONG = /test\/(chaos\/|e2e\/(compose|launch|leaks|long-waits|mcp-client-conformance))/;

class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isLong = ({ moduleId }: TestSpecification): boolean => LONG.test(moduleId);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

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
    sequence: { sequencer: LongFirst },
    maxWorkers: 3,
    reporters: ["default"],
  },
});
