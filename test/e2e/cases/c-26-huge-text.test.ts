// A huge text costs neither memory nor context: the model gets its beginning and its end under a cap, with how much is missing and where all of it is;
// all of it can be read there, each result in a file of its own; what the log holds is bounded.
//
// charmbracelet/crush#3480, openJiuwen-ai/jiuwenswarm#3568, earendil-works/pi#5757, langchain-ai/deepagents#5560 and #6302

import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { proves } from "../../support/proves.ts";
import { needs } from "../../support/real-part.ts";
import { bash, ContainerStage } from "./containers.ts";
import { type CaseSession, resultsIn, Stage, TOOLSET, textOf } from "./stage.ts";

const MB = 1024 * 1024;
/** Of the model's view of one result. */
const SHOWN_CHARS_MAX = 25_000;
const TURN_MS = 110_000;

const rssOf = (pid: number): number => Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
const pathIn = (text: string): string => /All of it is in (\S+)\.\]/.exec(text)?.[1] ?? "";

/** Runs commands in one turn; gives what the model was told of each. These programs must not grow by `growthMax` bytes. */
async function told(
  session: CaseSession,
  commands: readonly string[],
  roles: readonly ("node" | "hands")[],
  growthMax: number,
): Promise<readonly string[]> {
  const { installation } = session.stage;
  const pids = roles.map((role) => installation.program(role).pid);
  const before = pids.map(rssOf);
  await session.turn(`${commands.map((command) => bash(command)).join("\n")}\n---\nsay: done`, TURN_MS);
  for (const [at, pid] of pids.entries()) expect(rssOf(pid) - (before[at] ?? 0)).toBeLessThan(growthMax);
  const events = await session.eventsOf("agent.tool_result");
  for (const event of events) expect(JSON.stringify(event).length).toBeLessThan(3 * SHOWN_CHARS_MAX);
  const texts = resultsIn(session.lastRequest()).map(({ content }) => textOf(content));
  for (const text of texts) expect(text.length).toBeLessThan(SHOWN_CHARS_MAX);
  return texts;
}

needs("docker")("in a container", () => {
  let contained: ContainerStage;
  beforeAll(async () => {
    contained = await ContainerStage.open();
  });
  afterAll(() => contained.close());

  proves("hand:exact", "40 MB of text, 5 MB in one line, and the same once more: ends, marker, four whole copies", async () => {
    const session = await contained.stage.session([TOOLSET]);
    const many = "yes 0123456789abcdef | head -c 40000000; echo the end is here >&2; exit 3";
    const line = "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo after the line";
    const texts = await told(session, [many, line, line, many], ["node", "hands"], 3 * 40 * MB);
    expect(texts).toHaveLength(4);
    for (const text of [texts[0], texts[3]]) {
      expect(text).toMatch(/^0123456789abcdef\n/);
      expect(text).toMatch(/\[\d+ of 40000\d\d\d characters left out here\. All of it is in \S+\.\]/);
      expect(text).toMatch(/the end is here\nexit code 3$/);
    }
    for (const text of [texts[1], texts[2]]) {
      expect(text).toMatch(/^xxx/);
      expect(text).toMatch(/\[\d+ of 5000015 characters left out here\. All of it is in \S+\.\]/);
      expect(text).toMatch(/x\nafter the line$/);
    }
    const paths = texts.map(pathIn);
    expect(new Set(paths).size).toBe(4);
    expect(await session.turn(`${bash(`wc -c ${paths.join(" ")} | sed 's/ *\\([0-9]*\\).*/\\1/'`)}\necho: `)).toBe(
      ["40000028", "5000015", "5000015", "40000028", "90000086"].join("\n"),
    );
    expect(await session.turn(`call grep: {"pattern":"after the line","path":"${paths[1]}"}\necho: `)).toContain("after the line");
  });

  test("a huge file by the other tools: bounded too", async () => {
    const session = await contained.stage.session([TOOLSET]);
    await session.turn(
      `${bash("yes 'a line of a file' | head -c 20000000 > big.txt; head -c 1000000 /dev/zero | tr '\\0' y > line.txt")}\n---\nsay: made`,
    );
    for (const call of [
      'call read: {"file_path":"big.txt"}',
      'call read: {"file_path":"line.txt"}',
      'call grep: {"pattern":"of a","path":"big.txt"}',
      'call grep: {"pattern":"y","path":"line.txt"}',
    ]) {
      await session.turn(`${call}\n---\nsay: done`, TURN_MS);
      expect(textOf(resultsIn(session.lastRequest()).at(-1)?.content).length).toBeLessThan(2 * SHOWN_CHARS_MAX);
    }
    expect(await session.turn(`call read: {"file_path":"big.txt","view_range":[1000000,1000001]}\necho: `)).toBe(
      "a line of a file\na line of a file",
    );
  });
});

// Its sandbox is a thread of the hand host, so that one may grow with what its commands make.
test("in the virtual sandbox: the same ends, marker and whole copies", async () => {
  const stage = await Stage.open();
  try {
    const session = await stage.session([TOOLSET]);
    const texts = await told(session, ["seq 1 100000", "seq 1 100000", "seq 1 100000 | tr '\\n' ' '"], ["node"], 100 * MB);
    for (const text of texts) {
      expect(text).toMatch(/^1[ \n]2[ \n]3/);
      expect(text).toMatch(/99999[ \n]100000 ?$/);
      expect(text).toContain("characters left out here");
    }
    const paths = texts.map(pathIn);
    expect(new Set(paths).size).toBe(3);
    expect(await session.turn(`${bash(paths.map((path) => `wc -c < ${path}`).join("; "))}\necho: `)).toMatch(/^588894\n588894\n58889[45]$/);
  } finally {
    await stage.close();
  }
});
