// The demo's stand-in for a model: the scripted model, playing a sensible analyst for this one task. Every number that it states comes out of a
// tool result, so that a tool that breaks shows in what it says.

import { blocksOf, type ContentBlock, type ModelRequest, wordsOf } from "../support/model/request.ts";
import type { Action, Step } from "../support/model/script.ts";
import { type ModelOptions, type ScriptedModel, startModel } from "../support/model/server.ts";

const DATA_FILE = "/workspace/sales.csv";
export const REPORT_FILE = "/workspace/report.md";

const TOKEN_DELAY_MS = 12;
const ITS_OWN_THOUGHT_MS = 150;

const sums = (key: string, order: string): string =>
  `awk -F, 'NR > 1 { sum[${key}] += $4 * $5 } END { for (k in sum) printf "%s,%.2f\\n", k, sum[k] }' ${DATA_FILE} | sort -t, ${order}`;
const BY_REGION = sums("$2", "-k2,2nr");
const BY_PRODUCT = sums("$3", "-k2,2nr");
const BY_MONTH = sums("substr($1, 1, 7)", "-k1,1");

export function startOfflineModel(options: Pick<ModelOptions, "port" | "key"> = {}): Promise<ScriptedModel> {
  return startModel({ ...options, play });
}

/** The next step, by what was done since the user's last message. Null: this is not its task, and a script or "ok" answers. */
function play(request: ModelRequest): Step | null {
  const data = dataIn(request);
  if (data === null) return null;
  const done = callsIn(request);
  const failed = done.find((call) => call.isError);
  if (failed !== undefined) return say(`The tool ${failed.name} failed, so I stop here: ${firstLine(failed.result)}`);
  const answers = new Map(done.map((call) => [call.subject, call.result]));
  return next(data, answers);
}

function next(data: string, answers: ReadonlyMap<string, string>): Step {
  if (!answers.has(DATA_FILE)) return act("I'll put the data into my workspace first.", write(DATA_FILE, data));
  const [regions, products] = [answers.get(BY_REGION), answers.get(BY_PRODUCT)];
  if (regions === undefined || products === undefined) {
    return act("Now the totals: by region and by product, side by side.", bash(BY_REGION), bash(BY_PRODUCT));
  }
  const months = answers.get(BY_MONTH);
  if (months === undefined) return act("And month by month, to see whether one stands out.", bash(BY_MONTH));
  const found = { regions: readSums(regions), products: readSums(products), months: readSums(months) };
  const report = writeReport(found);
  if (report === null) return say(`I can't make sense of what the commands printed: ${firstLine(regions)}`);
  const written = answers.get(REPORT_FILE);
  if (written === undefined) return act("That is enough for a report.", write(REPORT_FILE, report));
  const readBack = answers.get(`read ${REPORT_FILE}`);
  if (readBack === undefined) {
    return act("Let me read it back, to be sure of what I hand over.", { type: "call", name: "read", input: { file_path: REPORT_FILE } });
  }
  if (readBack.trim() !== report.trim()) return say("What I read back is not what I wrote; please look at the report with care.");
  return say(summary(found));
}

interface Sum {
  readonly name: string;
  readonly amount: number;
}
interface Found {
  readonly regions: readonly Sum[];
  readonly products: readonly Sum[];
  readonly months: readonly Sum[];
}

/** Reads `name,amount` lines, as the commands print them. */
function readSums(text: string): Sum[] {
  return text.split("\n").flatMap((line) => {
    const [, name, amount] = /^([\w -]+),(\d+\.\d\d)$/.exec(line.trim()) ?? [];
    return name === undefined ? [] : [{ name, amount: Number(amount) }];
  });
}

const total = (sums: readonly Sum[]): number => sums.reduce((all, sum) => all + sum.amount, 0);
const money = (amount: number): string => amount.toFixed(2);
const largest = (sums: readonly Sum[]): Sum | undefined => sums.toSorted((one, other) => other.amount - one.amount)[0];

/** Null: there is nothing to report on. */
function writeReport({ regions, products, months }: Found): string | null {
  const [region, product, month] = [regions[0], products[0], largest(months)];
  if (region === undefined || product === undefined || month === undefined) return null;
  const average = (total(months) - month.amount) / Math.max(1, months.length - 1);
  const table = (title: string, sums: readonly Sum[]) => [
    `| ${title} | revenue | share |`,
    "| --- | ---: | ---: |",
    ...sums.map(({ name, amount }) => `| ${name} | ${money(amount)} | ${((100 * amount) / total(sums)).toFixed(1)} % |`),
    "",
  ];
  return [
    "# Sales, first half of 2026",
    "",
    `Revenue was ${money(total(regions))}. ${region.name} earned most (${money(region.amount)}), and so did the product "${product.name}" (${money(product.amount)}).`,
    `${month.name} stands out: ${money(month.amount)}, ${(month.amount / average).toFixed(1)} times the average of the other months.`,
    "",
    ...table("region", regions),
    ...table("product", products),
    ...table("month", months),
  ].join("\n");
}

function summary({ regions, products, months }: Found): string {
  const month = largest(months);
  return `${regions[0]?.name} was the strongest region and "${products[0]?.name}" the strongest product. ${month?.name} stands out with ${money(month?.amount ?? 0)} of ${money(total(months))}. The report is in ${REPORT_FILE}.`;
}

interface Done {
  readonly name: string;
  /** What was asked: the command, the file written, or `read` and the file. */
  readonly subject: string;
  readonly result: string;
  readonly isError: boolean;
}

/** The calls since the user's last message, with their results. */
function callsIn({ messages }: ModelRequest): Done[] {
  const blocks = messages.flatMap(blocksOf);
  const results = new Map(blocks.flatMap((block) => (block.type === "tool_result" ? [[block.tool_use_id, block] as const] : [])));
  return blocks.flatMap((block) => {
    if (block.type !== "tool_use") return [];
    const result = results.get(block.id);
    return [{ name: block.name, subject: subjectOf(block), result: wordsOf(result?.content), isError: result?.is_error === true }];
  });
}

function subjectOf({ name, input }: Extract<ContentBlock, { type: "tool_use" }>): string {
  const file = String(input.file_path ?? "");
  return name === "bash" ? String(input.command ?? "") : name === "read" ? `read ${file}` : file;
}

/** The CSV that the user sent, as a document or, where a harness spells it out, in a text. */
function dataIn({ messages }: ModelRequest): string | null {
  for (const block of messages.flatMap(blocksOf)) {
    if (block.type === "document" && block.source.type === "text") return block.source.data;
    const table = block.type === "text" ? /^date,region,product,units,unit_price\n(?:.+,.+\n?)+/m.exec(block.text) : null;
    if (table !== null) return table[0];
  }
  return null;
}

const write = (file_path: string, content: string): Action => ({ type: "call", name: "write", input: { file_path, content } });
const bash = (command: string): Action => ({ type: "call", name: "bash", input: { command } });
const act = (text: string, ...calls: Action[]): Step => ({
  actions: [{ type: "text", text }, ...calls],
  waitMs: ITS_OWN_THOUGHT_MS,
  tokenDelayMs: TOKEN_DELAY_MS,
  chunkChars: 24,
});
const say = (text: string): Step => act(text);
const firstLine = (text: string): string => text.split("\n")[0] ?? "";
