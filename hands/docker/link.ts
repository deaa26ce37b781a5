// The line to the runner in a container: one exec, frames over its input and output, every call numbered.
//
//   L1  A line that is lost ends every call on it; each is told why. Nothing is sent again.
//   L2  While calls are under way the runner gives a sign of life; a container that is paused, or silent for too long, is as good as dead.
//   L3  Nothing that comes out of a container is believed unread: shapes, sizes and pictures are checked here.

import type { Duplex } from "node:stream";
import type Docker from "dockerode";
import { z } from "zod";
import type { Outcome } from "../hand.ts";
import type { SandboxCall } from "../sandbox.ts";
import { cut } from "../tools/cap.ts";
import { Block, checked } from "./blocks.ts";
import type { User } from "./container.ts";
import { Demux } from "./demux.ts";
import { ASK_MS, within } from "./engine.ts";
import { FrameReader, frame } from "./frames.ts";
import { RUNNER_FOLDER, type ToRunner } from "./protocol.ts";

const READY_MS = 30_000;
const PING_MS = 2_000;
/** After this long without a sign of life somebody looks at the container. */
const SILENCE_MS = 4_000;
/** After this long it is given up whatever it looks like. */
const DEAD_MS = 60_000;
/** From a cancel to the end of what was cancelled. */
const CANCEL_MS = 4_000;
const DIAGNOSTICS_CHARS_MAX = 2_000;
const BLOCKS_MAX = 16;

const Message = z.discriminatedUnion("type", [
  z.object({ type: z.literal("ready") }),
  z.object({ type: z.literal("pong") }),
  z.object({ type: z.literal("done"), n: z.number(), content: z.array(Block).min(1).max(BLOCKS_MAX), isError: z.boolean() }),
  z.object({ type: z.literal("failed"), n: z.number(), reason: z.string() }),
  z.object({ type: z.literal("cancelled"), n: z.number() }),
]);

/** What a call came to on its line. `lost`: the line ended while it ran. */
export type Answered = Outcome | { readonly type: "cancelled" } | { readonly type: "lost" };

export interface LinkEvents {
  /** Nothing was heard for a while: what is wrong with the container? Null: nothing that can be seen. */
  readonly look: () => Promise<string | null>;
}

interface Pending {
  readonly call: SandboxCall;
  readonly resolve: (answered: Answered) => void;
  timer?: NodeJS.Timeout;
}

export class Link {
  readonly #stream: Duplex;
  readonly #events: LinkEvents;
  readonly #pending = new Map<number, Pending>();
  readonly #demux: Demux;
  #next = 1;
  #lostBecause: string | undefined;
  #isCut = false;
  #heardAt = performance.now();
  #watch: NodeJS.Timeout | undefined;
  #diagnostics = "";
  #isReady: (error?: Error) => void = () => {};
  #isOver: () => void = () => {};
  /** Resolves when the line is lost. */
  readonly over = new Promise<void>((resolve) => {
    this.#isOver = resolve;
  });

  /** Resolves when the runner is up. Rejects with what the engine says, or with `RunnerError`. */
  static async open(container: Docker.Container, user: User, events: LinkEvents, environment: readonly string[] = []): Promise<Link> {
    const exec = await within(ASK_MS, (abortSignal) =>
      container.exec({
        Cmd: ["node", `${RUNNER_FOLDER}/docker/runner/main.js`],
        User: `${user.uid}:${user.gid}`,
        WorkingDir: "/workspace",
        Env: [...environment],
        AttachStdin: true,
        AttachStdout: true,
        AttachStderr: true,
        Tty: false,
        abortSignal,
      }),
    );
    // The signal would cut the stream as well, so it isn't handed on; a stream that comes too late has no reader, and is closed.
    let isLate = false;
    const started = exec.start({ hijack: true, stdin: true, Tty: false }).then((stream) => (isLate ? close(stream) : stream));
    const stream = await within(READY_MS, () => started).catch((error: unknown) => {
      isLate = true;
      throw error;
    });
    const link = new Link(stream, events);
    await link.#ready();
    return link;
  }

  private constructor(stream: Duplex, events: LinkEvents) {
    this.#stream = stream;
    this.#events = events;
    const reader = new FrameReader((value) => this.#hear(value));
    this.#demux = new Demux(
      (chunk) => reader.push(chunk),
      (chunk) => this.#diagnose(chunk),
    );
    stream.on("data", (chunk: Buffer) => this.#read(chunk));
    for (const end of ["end", "close", "error"] as const) {
      stream.on(end, () => {
        this.#isCut ||= !this.isLost;
        this.lose("its runner ended");
      });
    }
  }

  get isLost(): boolean {
    return this.#lostBecause !== undefined;
  }

  /** Why the line was lost, as far as the line itself can tell. */
  get lostBecause(): string {
    return this.#lostBecause ?? "";
  }

  /** The other end went away by itself. */
  get isCut(): boolean {
    return this.#isCut;
  }

  run(call: SandboxCall, timeoutMs: number): Promise<Answered> {
    if (this.isLost) return Promise.resolve({ type: "lost" });
    const n = this.#next;
    this.#next += 1;
    return new Promise((resolve) => {
      if (this.#pending.size === 0) this.#startWatch();
      this.#pending.set(n, { call, resolve });
      this.#send({ type: "run", n, id: call.id, tool: call.tool, input: call.input, timeoutMs });
    });
  }

  /** Ends a call; one that can't be ended takes the line with it. */
  cancel(toolUseId: string): void {
    for (const [n, pending] of this.#pending) {
      if (pending.call.id !== toolUseId || pending.timer !== undefined) continue;
      pending.timer = setTimeout(() => this.lose("it did not end what was cancelled"), CANCEL_MS);
      this.#send({ type: "cancel", n });
    }
  }

  /** L1 */
  lose(because: string): void {
    if (this.#lostBecause !== undefined) return;
    this.#lostBecause = because;
    clearInterval(this.#watch);
    this.#stream.destroy();
    this.#isOver();
    this.#isReady(new RunnerError(this.#diagnostics.trim() === "" ? because : `${because}: ${this.#diagnostics.trim()}`));
    const all = [...this.#pending.values()];
    this.#pending.clear();
    for (const { resolve, timer } of all) {
      clearTimeout(timer);
      resolve({ type: "lost" });
    }
  }

  async #ready(): Promise<void> {
    const timer = setTimeout(() => this.lose(`its runner did not start within ${READY_MS} ms`), READY_MS);
    try {
      await new Promise<void>((resolve, reject) => {
        this.#isReady = (error) => (error === undefined ? resolve() : reject(error));
        if (this.isLost) reject(new RunnerError(this.lostBecause));
      });
    } finally {
      clearTimeout(timer);
    }
  }

  #read(chunk: Buffer): void {
    if (this.isLost) return;
    try {
      this.#demux.push(chunk);
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof SyntaxError)) throw error;
      this.lose("its runner said something that can't be read");
    }
  }

  /** L3 */
  #hear(value: unknown): void {
    if (this.isLost) return;
    this.#heardAt = performance.now();
    const read = Message.safeParse(value);
    if (!read.success) {
      this.lose("its runner said something that can't be read");
      return;
    }
    const message = read.data;
    switch (message.type) {
      case "ready":
        this.#isReady();
        break;
      case "pong":
        break;
      case "done":
        this.#finish(message.n, { type: "done", content: message.content.map(checked), isError: message.isError });
        break;
      case "failed":
        this.#finish(message.n, { type: "failed", reason: cut(message.reason.toWellFormed(), DIAGNOSTICS_CHARS_MAX) });
        break;
      case "cancelled":
        this.#finish(message.n, { type: "cancelled" });
        break;
    }
  }

  #finish(n: number, answered: Answered): void {
    const pending = this.#pending.get(n);
    if (pending === undefined) return;
    this.#pending.delete(n);
    clearTimeout(pending.timer);
    if (this.#pending.size === 0) clearInterval(this.#watch);
    pending.resolve(answered);
  }

  #send(message: ToRunner): void {
    this.#stream.write(frame(message));
  }

  /** L2 */
  #startWatch(): void {
    this.#heardAt = performance.now();
    let isLooking = false;
    this.#watch = setInterval(() => {
      const silentMs = performance.now() - this.#heardAt;
      if (silentMs >= DEAD_MS) {
        this.lose(`it gave no sign of life for ${DEAD_MS / 1000} seconds`);
        return;
      }
      this.#send({ type: "ping" });
      if (silentMs < SILENCE_MS || isLooking) return;
      isLooking = true;
      void this.#events
        .look()
        .then((wrong) => {
          if (wrong !== null) this.lose(wrong);
        })
        .finally(() => {
          isLooking = false;
        });
    }, PING_MS);
  }

  #diagnose(chunk: Buffer): void {
    this.#diagnostics = (this.#diagnostics + chunk.toString("utf8")).slice(-DIAGNOSTICS_CHARS_MAX).toWellFormed();
  }
}

function close(stream: Duplex): Duplex {
  stream.on("error", () => {});
  return stream.destroy();
}

/** The runner could not be started, for this reason. */
export class RunnerError extends Error {
  override readonly name = "RunnerError";
}
