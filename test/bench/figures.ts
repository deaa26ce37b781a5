// Figures of a benchmark: what was measured, how often, and how it is printed.

/** Times of one thing, in milliseconds. */
export interface Figure {
  readonly name: string;
  readonly ms: readonly number[];
  /** What it is to be held against: the median of another figure of the same run, and what that is. */
  readonly baseline?: { readonly name: string; readonly ms: number };
  readonly remark?: string;
}

export function quantile(ms: readonly number[], q: number): number {
  const sorted = [...ms].sort((one, other) => one - other);
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN;
}

export const median = (ms: readonly number[]): number => quantile(ms, 0.5);

/** Runs `once` `n` times after `warmup` uncounted times, one after the other. */
export async function times(n: number, once: (i: number) => Promise<number | undefined>, warmup = Math.ceil(n / 10)): Promise<readonly number[]> {
  const ms: number[] = [];
  for (let i = -warmup; i < n; i += 1) {
    const started = performance.now();
    const own = await once(i);
    if (i >= 0) ms.push(own ?? performance.now() - started);
  }
  return ms;
}

/** One row a figure: median, p99 (from 100 samples on), n, and the ratio to the baseline. */
export function print(title: string, figures: readonly Figure[]): void {
  console.log(`\n## ${title}\n`);
  console.log("| what | median ms | p99 ms | n | baseline | ratio |");
  console.log("| --- | ---: | ---: | ---: | --- | ---: |");
  for (const { name, ms, baseline, remark } of figures) {
    const p99 = ms.length >= 100 ? quantile(ms, 0.99).toFixed(2) : "–";
    const against = baseline ? `${baseline.name} ${baseline.ms.toFixed(2)}` : "–";
    const ratio = baseline ? (median(ms) / baseline.ms).toFixed(2) : "–";
    console.log(`| ${name}${remark ? ` (${remark})` : ""} | ${median(ms).toFixed(2)} | ${p99} | ${ms.length} | ${against} | ${ratio} |`);
  }
}

export interface Slope {
  readonly slope: number;
  readonly standardError: number;
}

/** Least squares of y over x, with the standard error of the slope. */
export function slopeOf(points: readonly { readonly x: number; readonly y: number }[]): Slope {
  const n = points.length;
  const mean = (of: (point: { x: number; y: number }) => number) => points.reduce((sum, point) => sum + of(point), 0) / n;
  const [x, y] = [mean((point) => point.x), mean((point) => point.y)];
  const spread = points.reduce((sum, point) => sum + (point.x - x) ** 2, 0);
  const slope = points.reduce((sum, point) => sum + (point.x - x) * (point.y - y), 0) / spread;
  const rest = points.reduce((sum, point) => sum + (point.y - y - slope * (point.x - x)) ** 2, 0);
  return { slope, standardError: Math.sqrt(rest / (n - 2) / spread) };
}
