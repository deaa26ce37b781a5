import { defineConfig } from "vitest/config";

const project = (name: string, include: string[], options: { timeoutMs: number; isSerial: boolean }) => ({
  test: {
    name,
    include,
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
      }),
      project("drivers", ["test/drivers/**/*.test.ts"], { timeoutMs: 60_000, isSerial: true }),
      project("e2e", ["test/e2e/**/*.test.ts", "test/chaos/**/*.test.ts"], { timeoutMs: 120_000, isSerial: true }),
      ...(process.env.PROOF ? [project("proof", ["test/proof/**/*.test.ts"], { timeoutMs: 3_600_000, isSerial: true })] : []),
    ],
    maxWorkers: 2,
    reporters: ["default"],
  },
});
