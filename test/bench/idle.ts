// What sessions cost that wait for their users: processor time and memory of every program, with a thousand of them and with none.

import { setTimeout as sleep } from "node:timers/promises";
import type { Product, Usage } from "./product.ts";
import { wholeTurns } from "./turns.ts";

/** What is done every 30 s is done once in it. */
const WATCH_MS = 30_000;
/** After the last turn, until what it left behind is done. */
const SETTLE_MS = 5_000;
const AT_ONCE = 25;

interface Watched {
  readonly cpuMs: Readonly<Record<string, number>>;
  readonly after: Readonly<Record<string, Usage>>;
}

export async function measureIdle(name: string, product: Product, sessions: number): Promise<void> {
  // As many turns in a few sessions first: what is measured afterwards is what sessions leave behind, not what turns do.
  await wholeTurns(product, AT_ONCE, Math.ceil(sessions / AT_ONCE));
  const none = await watch(product);
  for (let made = 0; made < sessions; made += AT_ONCE) await wholeTurns(product, Math.min(AT_ONCE, sessions - made), 1);
  const many = await watch(product);

  console.log(`\n## ${sessions.toLocaleString("en")} idle sessions, each after one turn, ${name}: over ${WATCH_MS / 1_000} s\n`);
  console.log(`| program | CPU ms, none | CPU ms, ${sessions} | RSS MB, none | RSS MB, ${sessions} | bytes a session |`);
  console.log("| --- | ---: | ---: | ---: | ---: | ---: |");
  for (const role of Object.keys(none.after)) {
    const [before, after] = [none.after[role]?.residentKb ?? 0, many.after[role]?.residentKb ?? 0];
    const mb = (kb: number) => (kb / 1024).toFixed(1);
    console.log(
      `| ${role} | ${none.cpuMs[role] ?? 0} | ${many.cpuMs[role] ?? 0} | ${mb(before)} | ${mb(after)} | ${Math.round(((after - before) * 1024) / sessions)} |`,
    );
  }
  const sum = (watched: Watched) => Object.values(watched.cpuMs).reduce((total, ms) => total + ms, 0);
  console.log(`\nCPU of all programs, with them against none: ${(sum(many) / sum(none)).toFixed(2)} (bar 1.05; the clock counts in steps of 10 ms).`);
}

async function watch(product: Product): Promise<Watched> {
  await sleep(SETTLE_MS);
  const before = await product.usage();
  await sleep(WATCH_MS);
  const after = await product.usage();
  return { after, cpuMs: Object.fromEntries(Object.entries(after).map(([role, { cpuMs }]) => [role, cpuMs - (before[role]?.cpuMs ?? 0)])) };
}
