import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Outcome } from "../../hands/hand.ts";
import type { Sandbox } from "../../hands/sandbox.ts";
import { containerOf, ensureImage, IMAGE_MS, makeRig, type Rig } from "../support/docker.ts";
import { needs } from "../support/real-part.ts";

const MB = 1024 * 1024;

needs("docker")("a shell in a container", () => {
  let rig: Rig;
  let folder: string;
  let sandbox: Sandbox;
  let calls = 0;

  const run = (command: string, timeout_ms?: number): Promise<Outcome> => {
    calls += 1;
    return sandbox.run({ id: `call_${calls}`, tool: "bash", input: { command, ...(timeout_ms ? { timeout_ms } : {}) } });
  };
  const bash = async (command: string, timeout_ms?: number): Promise<string> => textOf(await run(command, timeout_ms));
  const put = (name: string, content: string) => writeFile(join(folder, "workspace", name), content);
  /** What the commands' user runs, besides the runner. */
  const processes = async (): Promise<string[]> => {
    const { Processes } = await containerOf(folder).top({ ps_args: "-eo pid,uid,comm" });
    return Processes.filter(([, uid]: string[]) => uid === "1000")
      .map(([, , name]: string[]) => name ?? "")
      .filter((name: string) => name !== "node" && name !== "bash");
  };

  beforeAll(async () => {
    await ensureImage();
    rig = await makeRig();
    folder = await rig.folder();
    sandbox = rig.driver.open(folder, false, "session_test");
    expect(await bash("echo ready")).toBe("ready");
  }, IMAGE_MS);
  afterAll(async () => {
    await sandbox.stop("the test is over");
    expect(await rig.containers()).toEqual([]);
    await rig.clean();
  });

  it("ends a detached child that ignores every signal it can, at the time-out, and leaves nothing", async () => {
    const stubborn = "trap '' TERM INT HUP; while true; do sleep 1; done";
    const started = Date.now();
    const outcome = await run(`setsid bash -c "${stubborn}" & (nohup bash -c "${stubborn}" &) ; ${stubborn}`, 2_000);
    expect(textOf(outcome)).toContain("Timed out after 2000 ms");
    expect(Date.now() - started).toBeLessThan(8_000);
    expect(await processes()).toEqual([]);
    expect(await bash("echo on")).toBe("on");
  });

  it("ends all of it at a cancel, a fork bomb too", async () => {
    const bomb = run("f() { f | f & }; f; touch started; sleep 300");
    calls += 1;
    await expect.poll(() => readFile(join(folder, "workspace/started")).then(String, () => null), { timeout: 20_000 }).toBe("");
    sandbox.cancel(`call_${calls - 1}`, "it was cancelled while it ran");
    expect(await bomb).toEqual({ type: "failed", reason: "it was cancelled while it ran" });
    expect(await processes()).toEqual([]);
    expect(await bash("echo on")).toBe("on");
  });

  it("ends what ran behind a command when that returns", async () => {
    expect(await bash("sleep 300 & setsid sleep 300 & nohup sleep 300 >/dev/null & echo done")).toContain("done");
    expect(await processes()).toEqual([]);
  });

  it("keeps ten megabytes of random bytes exact beside text on stderr, and the real exit code", async () => {
    await put(
      "noise.py",
      [
        "import os, sys, hashlib",
        "sum = hashlib.sha256()",
        "for i in range(640):",
        "    piece = os.urandom(16384)",
        "    sum.update(piece)",
        "    os.write(1, piece)",
        "    os.write(2, b'line %d\\n' % i)",
        "open('/workspace/sum', 'w').write(sum.hexdigest())",
        "os._exit(3)",
      ].join("\n"),
    );
    const text = await bash("python3 noise.py");
    const [first, ...rest] = text.split("\n");
    const path = /^\[stdout: 10485760 bytes that are not text; all of them are in (\S+)\]$/.exec(first ?? "")?.[1] ?? "";
    expect(rest).toEqual([...Array.from({ length: 640 }, (_, index) => `line ${index}`), "exit code 3"]);
    const bytes = await readFile(join(folder, path));
    expect(bytes.length).toBe(10 * MB);
    expect(createHash("sha256").update(bytes).digest("hex")).toBe(await readFile(join(folder, "workspace/sum"), "utf8"));
  });

  it("gives the exit code of a signal, and of a shell that was replaced", async () => {
    expect(await bash("kill -9 $$")).toBe("exit code 137");
    expect(await bash("exec bash -c 'exit 5'")).toBe("exit code 5");
    expect(await bash("set -e; false; echo never")).toBe("exit code 1");
    expect(await bash("exit 300")).toBe("exit code 44");
  });

  it("takes a command as it is: quotes, lines, tabs, here-documents, its own line numbers", async () => {
    expect(await bash("cat <<'EOF'\n$HOME \"x\" 'y' \\n\tz\nEOF")).toBe("$HOME \"x\" 'y' \\n\tz");
    expect(await bash("true\n\nno-such-command")).toBe("bash: line 3: no-such-command: command not found\nexit code 127");
    expect(await bash("echo a > /dev/stderr; echo b > /dev/stdout; echo c | tee /dev/stderr")).toBe("b\nc\na\nc");
    expect(await bash("cat; echo no input")).toBe("no input");
    expect(await bash(`echo ${"x".repeat(200_000)} | wc -c`)).toBe("200001");
  });

  it("carries odd values exactly, exported or not, and no arrays, functions, options", async () => {
    await bash(`A=$'it\\'s\\n\\ttwo "lines"'; export B=$'\\xff\\x01'; C=(1 2); D() { :; }; readonly E=1; set -u; unset USER; cd /tmp`);
    expect(await bash(`printf '%s|' "$A"; printf %s "$B" | od -An -tx1; pwd`)).toBe(`it's\n\ttwo "lines"| ff 01\n/tmp`);
    expect(await bash("echo [$C][$E][$USER]; type D 2>&1; env | grep -c '^A='")).toBe("[][][]\nbash: line 1: type: D: not found\n0\nexit code 1");
    expect(await bash("E=2; echo $E; trap 'echo bye' EXIT; F=3")).toBe("2\nbye");
    expect(await bash("cd / ; unset A B; set -x; G=4 2>/dev/null")).toContain("G=4");
    expect(await bash("echo $G; pwd")).toBe("4\n/");
    await bash("cd /workspace");
  });

  it("goes on in /workspace when its directory is gone", async () => {
    await bash("mkdir gone; cd gone");
    await bash("rmdir /workspace/gone");
    expect(await bash("pwd")).toBe("/workspace");
  });

  it("bounds memory however much is printed: 40 MB of text, 5 MB in one line, a printer without end", async () => {
    const before = process.memoryUsage().rss;
    const many = await bash("yes 0123456789abcdef | head -c 40000000");
    expect(many.length).toBeLessThan(25_000);
    expect(many).toContain("of 40000000 characters left out here");
    const line = await bash("head -c 5000000 /dev/zero | tr '\\0' x");
    expect(line).toContain("of 5000000 characters left out here");
    const path = /All of it is in (\S+)\.\]/.exec(line)?.[1] ?? "";
    expect((await readFile(join(folder, path))).length).toBe(5_000_000);
    expect(await bash("yes", 1_500)).toContain("Timed out after 1500 ms");
    expect(process.memoryUsage().rss - before).toBeLessThan(120 * MB);
    await bash("rm -rf .manyhands");
  });

  it("says that memory was used up, and goes on", async () => {
    const text = await bash("python3 -c 'x = bytearray(2 * 1024 ** 3); print(len(x))'");
    expect(text).toContain("[the sandbox's memory was used up, and a process was ended for it]");
    expect(text).toContain("exit code 137");
    expect(await bash("echo on")).toBe("on");
  });

  it("answers a call in less than an exec of its own takes", async () => {
    const exec = async () => {
      const made = await containerOf(folder).exec({ Cmd: ["bash", "-c", "echo hi"], AttachStdout: true });
      const stream = await made.start({});
      stream.resume();
      await once(stream, "end");
    };
    const calls: number[] = [];
    const execs: number[] = [];
    for (let round = 0; round < 11; round += 1) {
      calls.push(await timed(() => bash("echo hi")));
      execs.push(await timed(exec));
    }
    process.stdout.write(`\na call in a running container: ${median(calls).toFixed(1)} ms; an exec of its own: ${median(execs).toFixed(1)} ms\n`);
    expect(median(calls)).toBeLessThan(median(execs));
  });
});

async function timed(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await work();
  return performance.now() - started;
}

const median = (times: readonly number[]): number => times.toSorted((one, other) => one - other)[times.length >> 1] ?? 0;

function textOf(outcome: Outcome): string {
  if (outcome.type !== "done") return `${outcome.type}: ${outcome.reason}`;
  return outcome.content.map((block) => (block.type === "text" ? block.text : `<${block.type}>`)).join("");
}
