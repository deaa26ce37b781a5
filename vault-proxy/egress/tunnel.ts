// Two connections as one: bytes go both ways as they come.
//
//   T1  Nothing is kept: a side that does not read holds up the other.
//   T2  The end of one direction is told on; the other goes on until it ends too. A broken side breaks the other.
//   T3  Silence in both directions, and more bytes than anyone needs, end it.

import type { Duplex } from "node:stream";

const IDLE_MS = 300_000;
const BYTES_MAX = 64 * 1024 ** 3;

export interface TunnelLimits {
  readonly idleMs?: number;
  readonly bytesMax?: number;
}

export interface Tunnelled {
  readonly bytesOut: number;
  readonly bytesIn: number;
  readonly why: "ended" | "broken" | "idle" | "bytes";
}

/** Resolves when both are closed. `inside`: the hand's end. */
export function tunnel(inside: Duplex, outside: Duplex, { idleMs = IDLE_MS, bytesMax = BYTES_MAX }: TunnelLimits = {}): Promise<Tunnelled> {
  return new Promise((resolve) => {
    const bytes = { out: 0, in: 0 };
    let why: Tunnelled["why"] = "ended";
    let open = 2;
    const end = (because: Tunnelled["why"]) => {
      if (why === "ended") why = because;
      inside.destroy();
      outside.destroy();
    };
    const timer = setTimeout(() => end("idle"), idleMs);
    const join = (from: Duplex, to: Duplex, way: "out" | "in") => {
      from.on("data", (piece: Buffer) => {
        bytes[way] += piece.length;
        timer.refresh();
        if (bytes.in + bytes.out > bytesMax) end("bytes");
      });
      from.on("error", () => end("broken"));
      from.on("close", () => {
        open -= 1;
        // Closed before both its directions had ended: the other side hears of it as a break.
        if (!from.readableEnded || !from.writableFinished) to.destroy();
        if (open > 0) return;
        clearTimeout(timer);
        resolve({ bytesOut: bytes.out, bytesIn: bytes.in, why });
      });
      from.pipe(to);
    };
    join(inside, outside, "out");
    join(outside, inside, "in");
  });
}
