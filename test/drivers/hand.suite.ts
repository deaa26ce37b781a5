// What every sandbox must do, whatever is behind it. Run by one test file a driver.

import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crc32, deflateSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Outcome } from "../../hands/hand.ts";
import type { Sandbox, SandboxDriver } from "../../hands/sandbox.ts";
import type { HandTool } from "../../hands/toolset.ts";

export function handSuite(driver: SandboxDriver, workspaceOf: (folder: string) => string): void {
  let folder: string;
  let sandbox: Sandbox;
  let calls = 0;

  const run = (tool: HandTool, input: unknown, id?: string): Promise<Outcome> => {
    calls += 1;
    return sandbox.run({ id: id ?? `call_${calls}`, tool, input });
  };
  const bash = async (command: string, timeout_ms?: number): Promise<string> =>
    textOf(await run("bash", { command, ...(timeout_ms ? { timeout_ms } : {}) }));
  const put = (name: string, content: string | Buffer) => writeFile(join(workspaceOf(folder), name), content);

  describe(`the ${driver.name} sandbox`, () => {
    beforeAll(async () => {
      folder = await mkdtemp(join(tmpdir(), "hand-"));
      sandbox = driver.open(folder, false);
    });
    beforeEach(async () => {
      await run("bash", { restart: true });
      await bash("rm -rf /workspace/* /workspace/.manyhands");
    });
    afterAll(async () => {
      await sandbox.stop("the test is over");
      await rm(folder, { recursive: true, force: true });
    });

    describe("the shell", () => {
      it("keeps directory and variables from call to call, and nothing after a restart", async () => {
        await bash("A=one; export B='two words'; mkdir -p sub; cd sub; f() { echo f; }");
        expect(await bash("echo $A $B; pwd")).toBe("one two words\n/workspace/sub");
        expect(await bash("unset A; echo gone")).toBe("gone");
        expect(await bash("echo [$A] $B")).toBe("[] two words");
        expect(textOf(await run("bash", { restart: true }))).toBe("The shell was restarted; files kept.");
        expect(await bash("echo [$B]; pwd; ls")).toBe("[]\n/workspace\nsub");
      });

      it("gives output, then errors, then an exit code that is not 0, and calls it no error", async () => {
        expect(await run("bash", { command: "echo out; echo err >&2; exit 3" })).toEqual(done("out\nerr\nexit code 3"));
        expect(await run("bash", { command: "true" })).toEqual(done("(no output)"));
      });

      it("throws away what is written to /dev/null", async () => {
        expect(await bash("echo x > /dev/null; cat /dev/null; echo end")).toBe("end");
      });

      it("ends a command at its time-out and goes on with what there was before it", async () => {
        await bash("A=kept");
        const started = Date.now();
        const outcome = await run("bash", { command: "A=lost; while true; do A=lost; done", timeout_ms: 500 });
        expect(outcome).toMatchObject({ type: "done", isError: true });
        expect(textOf(outcome)).toContain("Timed out after 500 ms");
        expect(Date.now() - started).toBeLessThan(5_000);
        expect(await bash("echo $A")).toBe("kept");
      });

      it.each([
        ["a sleeping one", "sleep 300 & echo done", /^done$/],
        ["one in its own session", "setsid sleep 300 & echo done", /^done$/],
        // What it printed until then may be given too.
        ["one that prints for ever", "while true; do echo x; done & echo done", /^(x\n)*done(\nx)*$/],
        ["one in a subshell", "(sleep 300 &); echo done", /^done$/],
      ])("returns when the foreground is done, whatever runs behind it: %s", async (_, command, text) => {
        const started = Date.now();
        const outcome = await run("bash", { command });
        expect(outcome).toMatchObject({ type: "done", isError: false });
        expect(textOf(outcome)).toMatch(text);
        expect(Date.now() - started).toBeLessThan(2_000);
      });

      it("waits for background jobs when the command says so", async () => {
        expect(await bash("for i in 1 2; do (sleep 0.1; echo $i > $i.txt) & done; wait; cat 1.txt 2.txt")).toBe("1\n2");
      });

      it("cancels a running command at once, with the reason", async () => {
        const running = run("bash", { command: "touch started; sleep 300" }, "long");
        await until(async () => (await readdir(workspaceOf(folder))).includes("started"));
        const asked = Date.now();
        sandbox.cancel("long", "it was cancelled while it ran");
        expect(await running).toEqual({ type: "failed", reason: "it was cancelled while it ran" });
        expect(Date.now() - asked).toBeLessThan(5_000);
        expect(await bash("ls")).toBe("started");
      });

      it("keeps long output whole in a file, and gives head, tail and path", async () => {
        const text = await bash("seq 1 60000", 60_000);
        expect(text.length).toBeLessThan(25_000);
        expect(text.startsWith("1\n2\n3\n")).toBe(true);
        expect(text.endsWith("\n59999\n60000")).toBe(true);
        const path = /All of it is in (\S+)\.\]/.exec(text)?.[1] ?? "";
        expect(await bash(`wc -l < ${path}; head -1 ${path}`)).toBe("59999\n1");
      });

      it("keeps two long outputs apart, also under long and odd ids", async () => {
        const long = "x".repeat(300);
        for (const id of [`${long}1`, `${long}2`, "../../etc/passwd"]) await run("bash", { command: "seq 1 30000" }, id);
        expect(await readdir(join(workspaceOf(folder), ".manyhands"))).toHaveLength(3);
      });

      it("never cuts a character in two", async () => {
        await put("emoji.txt", `${"a".repeat(9_999)}${"😀".repeat(60_000)}`);
        const text = await bash("cat emoji.txt");
        expect(text.isWellFormed()).toBe(true);
        expect(text).toContain("characters left out");
      });

      it("says after an adoption that the shell is new, once", async () => {
        const again = driver.open(folder, true);
        expect(textOf(await again.run({ id: "a", tool: "read", input: { file_path: "none" } }))).toContain("does not exist");
        expect(textOf(await again.run({ id: "b", tool: "bash", input: { command: "echo hi" } }))).toBe("shell restarted; files kept\nhi");
        expect(textOf(await again.run({ id: "c", tool: "bash", input: { command: "echo hi" } }))).toBe("hi");
        await again.stop("over");
      });
    });

    describe("files", () => {
      it("writes with folders, reads back, whole and in part", async () => {
        expect(await run("write", { file_path: "a/b/c.txt", content: "1\n2\n3\n" })).toEqual(done("Wrote 6 bytes to /workspace/a/b/c.txt."));
        expect(await run("read", { file_path: "/workspace/a/b/c.txt" })).toEqual(done("1\n2\n3\n"));
        expect(await run("read", { file_path: "a/b/c.txt", view_range: [2, 3] })).toEqual(done("2\n3"));
        expect(await run("read", { file_path: "a/b/c.txt", view_range: [2, -1] })).toEqual(done("2\n3\n"));
        expect(textOf(await run("read", { file_path: "a/b/c.txt", view_range: [9, 10] }))).toContain("has 4 lines");
        expect(await readdir(join(workspaceOf(folder), "a/b"))).toEqual(["c.txt"]);
      });

      it("replaces lone halves of a character before anything leaves or is stored", async () => {
        await run("write", { file_path: "half.txt", content: "a\ud83db" });
        expect(await readFile(join(workspaceOf(folder), "half.txt"), "utf8")).toBe("a\ufffdb");
        await put("bytes.txt", Buffer.from([0x61, 0xf0, 0x9f, 0x62]));
        expect(textOf(await run("read", { file_path: "bytes.txt" })).isWellFormed()).toBe(true);
      });

      it("edits one place, or all, and says why it can't", async () => {
        await put("e.txt", "one two two $& $1");
        expect(textOf(await run("edit", { file_path: "e.txt", old_string: "three", new_string: "x" }))).toContain("was not found");
        expect(textOf(await run("edit", { file_path: "e.txt", old_string: "two", new_string: "x" }))).toContain("matches 2 places");
        expect(textOf(await run("edit", { file_path: "e.txt", old_string: "one", new_string: "one" }))).toContain("are the same");
        expect(await run("edit", { file_path: "e.txt", old_string: "one", new_string: "$& 1" })).toEqual(
          done("Replaced 1 place in /workspace/e.txt."),
        );
        expect(await run("edit", { file_path: "e.txt", old_string: "two", new_string: "2", replace_all: true })).toMatchObject({ isError: false });
        expect(textOf(await run("read", { file_path: "e.txt" }))).toBe("$& 1 2 2 $& $1");
      });

      it("refuses what is not there, a folder, a binary and a path outside", async () => {
        await put("data.bin", Buffer.from([1, 0, 2]));
        for (const [file_path, why] of [
          ["none.txt", "does not exist"],
          [".", "is a folder"],
          ["data.bin", "binary file of 3 bytes"],
          ["../../etc/passwd", "outside of"],
          ["/etc/passwd", "outside of"],
        ]) {
          const outcome = await run("read", { file_path });
          expect(outcome).toMatchObject({ type: "done", isError: true });
          expect(textOf(outcome)).toContain(why);
        }
        expect(textOf(await run("write", { file_path: "/workspace/../outside.txt", content: "x" }))).toContain("outside of");
        expect(textOf(await run("write", { file_path: "data.bin/x", content: "x" }))).toContain("a part of the path is a file");
      });
    });

    describe("pictures", () => {
      const read = (file_path: string) => run("read", { file_path });

      it("shows a good one as a picture, by its bytes and not by its name", async () => {
        const bytes = png(10, 10);
        await put("picture.txt", bytes);
        const source = { type: "base64", media_type: "image/png", data: bytes.toString("base64") };
        expect(await read("picture.txt")).toEqual({ type: "done", isError: false, content: [{ type: "image", source }] });
      });

      it("turns a bad one into a note with the reason", async () => {
        await put("cut.png", png(10, 10).subarray(0, 40));
        await put("wide.png", png(9_000, 1));
        await put("huge.png", png(10, 10, 5 * 1024 * 1024));
        await put("cut.jpg", Buffer.from("ffd8ffe000104a46494600", "hex"));
        for (const [name, why] of [
          ["cut.png", "broken or cut off"],
          ["wide.png", "9000×1 pixels"],
          ["huge.png", "at most"],
          ["cut.jpg", "broken or cut off"],
        ] as const) {
          const outcome = await read(name);
          expect(outcome).toMatchObject({ type: "done", isError: true, content: [{ type: "text" }] });
          expect(textOf(outcome)).toContain(why);
        }
      });
    });

    describe("searching", () => {
      it("finds files by name, newest first", async () => {
        await bash("mkdir -p src/deep; echo a > src/a.ts; echo b > src/deep/b.ts; echo c > c.md; touch -d '2020-01-01' src/a.ts");
        expect(textOf(await run("glob", { pattern: "**/*.ts" }))).toBe("/workspace/src/deep/b.ts\n/workspace/src/a.ts");
        expect(textOf(await run("glob", { pattern: "*.{md,txt}" }))).toBe("/workspace/c.md");
        expect(textOf(await run("glob", { pattern: "[!a].ts", path: "src/deep" }))).toBe("/workspace/src/deep/b.ts");
        expect(textOf(await run("glob", { pattern: "/workspace/src/?.ts" }))).toBe("/workspace/src/a.ts");
        expect(textOf(await run("glob", { pattern: "*.py" }))).toBe("No files match.");
      });

      it("finds lines by a regular expression", async () => {
        await bash("mkdir d; printf 'alpha\\nbeta\\n' > d/x.txt; printf 'ALPHA\\n' > y.txt");
        await put("z.bin", Buffer.from("alpha\0"));
        expect(textOf(await run("grep", { pattern: "^al.ha$" }))).toBe("/workspace/d/x.txt:1:alpha\n[1 binary or very large files not searched]");
        expect(textOf(await run("grep", { pattern: "(?i)alpha", path: "y.txt" }))).toBe("/workspace/y.txt:1:ALPHA");
        expect(textOf(await run("grep", { pattern: "gamma", path: "d" }))).toBe("No lines match.");
        expect(textOf(await run("grep", { pattern: "(", path: "d" }))).toContain("no regular expression");
        expect(textOf(await run("grep", { pattern: "a", path: "nowhere" }))).toContain("does not exist");
      });

      it("can be ended while a pattern runs for ever; what was read beside it is still answered", async () => {
        await put("evil.txt", "a".repeat(40));
        await put("good.txt", "good");
        const evil = run("grep", { pattern: "^(a+)+$b", path: "evil.txt" }, "evil");
        const beside = run("read", { file_path: "good.txt" });
        sandbox.cancel("evil", "it was cancelled while it ran");
        expect(await evil).toEqual({ type: "failed", reason: "it was cancelled while it ran" });
        expect(await beside).toEqual(done("good"));
      });
    });
  });
}

const done = (text: string): Outcome => ({ type: "done", content: [{ type: "text", text }], isError: false });

function textOf(outcome: Outcome): string {
  if (outcome.type !== "done") return `${outcome.type}: ${outcome.reason}`;
  return outcome.content.map((block) => (block.type === "text" ? block.text : `<${block.type}>`)).join("");
}

/** A grey picture; `padding` bytes of a chunk that nobody needs. */
function png(width: number, height: number, padding = 0): Buffer {
  const chunk = (type: string, data: Buffer): Buffer => {
    const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
    const ends = [Buffer.alloc(4), Buffer.alloc(4)] as const;
    ends[0].writeUInt32BE(data.length);
    ends[1].writeUInt32BE(crc32(body));
    return Buffer.concat([ends[0], body, ends[1]]);
  };
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.writeUInt8(8, 8);
  const pixels = deflateSync(Buffer.alloc((width + 1) * height));
  const extra = padding > 0 ? [chunk("tEXt", Buffer.alloc(padding, 0x61))] : [];
  const signature = Buffer.from("89504e470d0a1a0a", "hex");
  return Buffer.concat([signature, chunk("IHDR", header), ...extra, chunk("IDAT", pixels), chunk("IEND", Buffer.alloc(0))]);
}

async function until(isTrue: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 10_000;
  while (!(await isTrue())) {
    if (Date.now() > deadline) throw new Error("the condition did not come true in time");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
