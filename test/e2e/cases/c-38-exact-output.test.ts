// What a command printed is what it is said to have printed, byte for byte, and its exit code is the real one; a call ends even where no end is signalled,
// and one whose container stops says so.
//
// apocas/dockerode#736, #534, #175, apocas/docker-modem#195

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { engine } from "../../support/docker.ts";
import { proves } from "../../support/proves.ts";
import { needs } from "../../support/real-part.ts";
import { until } from "../../support/until.ts";
import { bash, ContainerStage } from "./containers.ts";
import { type CaseSession, resultsIn, TOOLSET, textOf } from "./stage.ts";

const BYTES = 10 * 1024 * 1024;
const PIECES = 640;
/** Random bytes on one output and text on the other, turn by turn; what it wrote is in files beside it. */
const NOISE = `
import os
sent = open('sent', 'wb')
for i in range(${PIECES}):
    piece = os.urandom(${BYTES / PIECES})
    sent.write(piece)
    os.write(1, piece)
    os.write(2, b'line %d\\n' % i)
sent.close()
os._exit(3)
`;
/** The same two outputs on a terminal, which makes one of them. */
const TERMINAL = `
import os, pty, sys
code = pty.spawn(['bash', '-c', 'for i in $(seq 2000); do echo out $i; echo err $i >&2; done; test -t 1 && exit 3'])
sys.stdout.flush()
os._exit(os.waitstatus_to_exitcode(code))
`;

const sha = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

needs("docker")("in a container", () => {
  let contained: ContainerStage;
  let session: CaseSession;
  let workspace: string;
  beforeAll(async () => {
    contained = await ContainerStage.open();
    session = await contained.stage.session([TOOLSET]);
    await session.turn(`${bash("true")}\n---\nsay: warm`);
    workspace = await contained.workspaceOf(session);
  });
  afterAll(() => contained.close());

  const told = async (command: string): Promise<string> => {
    await session.turn(`${bash(command)}\n---\nsay: done`);
    return (await session.results()).at(-1)?.text ?? "";
  };

  proves("hand:exact", "ten megabytes of random bytes beside text on the other output, exit 3: all three as they were", async () => {
    await writeFile(join(workspace, "noise.py"), NOISE);
    const [first = "", ...rest] = (await told("python3 noise.py")).split("\n");
    const path = /^\[stdout: 10485760 bytes that are not text; all of them are in (\S+)\]$/.exec(first)?.[1] ?? "";
    expect(rest).toEqual([...Array.from({ length: PIECES }, (_, at) => `line ${at}`), "exit code 3"]);
    const [got, sent] = await Promise.all([readFile(join(workspace, ".manyhands", basename(path))), readFile(join(workspace, "sent"))]);
    expect([got.length, sha(got)]).toEqual([BYTES, sha(sent)]);
  });

  test("the same on a terminal of its own: every line, in order, no framing, exit 3", async () => {
    await writeFile(join(workspace, "terminal.py"), TERMINAL);
    const lines = (await told("python3 terminal.py")).replaceAll("\r", "").split("\n");
    expect(lines).toEqual([...Array.from({ length: 2000 }, (_, at) => [`out ${at + 1}`, `err ${at + 1}`]).flat(), "exit code 3"]);
  });

  test.each([
    ["exit 255", "exit code 255"],
    ["kill -SEGV $$", "exit code 139"],
    ["no-such-command", "bash: line 1: no-such-command: command not found\nexit code 127"],
    ["false | true", "(no output)"],
    ["set -o pipefail; false | true", "exit code 1"],
    ["printf 'no newline'", "no newline"],
    ["printf '\\n\\n'", "\n"],
    ["printf '\\001\\000\\000\\000\\000\\000\\000\\005' | od -An -tx1", " 01 00 00 00 00 00 00 05"],
    ["printf '\\002\\000\\000\\000\\000\\000\\000\\005hello'", /8|hello|bytes that are not text/],
  ])("%s", async (command, says) => {
    const text = await told(command);
    if (typeof says === "string") expect(text).toBe(says);
    else expect(text).toMatch(says);
  });

  test("an output that is never closed ends no later than its command", async () => {
    expect(await told("(exec sleep 300) & exec >&- 2>&-; exit 4")).toBe("exit code 4");
  });

  proves("hand:dies", "a container that is stopped halfway: an error that says so, and then a new one on the same files", async () => {
    await session.say(`${bash("echo half > half.txt; echo printed; sleep 60")}\n---\nsay: done`);
    await until(async () => (await readFile(join(workspace, "half.txt"), "utf8").catch(() => "")) === "half\n");
    await engine.getContainer((await contained.containerOf(session)).id).stop({ t: 1 });
    await session.settled();
    const result = resultsIn(session.lastRequest()).at(-1);
    expect(result?.is_error).toBe(true);
    expect(textOf(result?.content)).toMatch(/lost while the tool ran: its container was (ended \(exit code \d+\)|removed)/);
    expect(await told("cat half.txt")).toBe("shell restarted; files kept\nhalf");
  });
});
