// Waiting on a condition, with a deadline: the only way in which a test waits.

const POLL_MS = 20;
const DEADLINE_MS = 10_000;

/** Resolves with the first truthy value of `condition`; rejects after `timeoutMs`, naming `what` was awaited. */
export async function until<T>(
  condition: () => T | Promise<T>,
  {
    timeoutMs = DEADLINE_MS,
    pollMs = POLL_MS,
    what = String(condition),
  }: { timeoutMs?: number; pollMs?: number; what?: string | (() => string) } = {},
): Promise<NonNullable<T>> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const value = await condition();
    if (value) return value as NonNullable<T>;
    if (performance.now() > deadline) throw new Error(`Not within ${timeoutMs} ms: ${typeof what === "string" ? what : what()}`);
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}
