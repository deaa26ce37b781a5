// One connection of a program in a hand, as the hand host passes it on: whose it is, where it may go, and its limits.
//
//   L1  A line begins with its policy: four bytes of length, then the text whose hash the grant names. What follows is the program's own.
//   L2  The grant is asked again for every request on the line: one that ended, or was revoked, opens nothing more. A revocation cuts what is open.
//   L3  At most LINES_PER_SESSION_MAX lines of a session and LINES_MAX altogether.

import type { Duplex } from "node:stream";
import type { Grant, Grants } from "../grant.ts";
import { POLICY_BYTES_MAX, Policy } from "./policy.ts";
import { Denied } from "./says.ts";

const LINES_PER_SESSION_MAX = 128;
const LINES_MAX = 4_096;
const POLICY_MS = 5_000;
const LENGTH_BYTES = 4;

export class Line {
  readonly grant: Grant;
  readonly policy: Policy;
  readonly signal: AbortSignal;
  readonly #authorization: string | undefined;
  readonly #grants: Grants;
  /** Exchanges and tunnels that are open on it. */
  #busy = 0;

  constructor(given: { grant: Grant; policy: Policy; authorization: string | undefined; grants: Grants; signal: AbortSignal }) {
    this.grant = given.grant;
    this.policy = given.policy;
    this.signal = given.signal;
    this.#authorization = given.authorization;
    this.#grants = given.grants;
  }

  get isBusy(): boolean {
    return this.#busy > 0;
  }

  /** Does one thing on the line. Throws `Denied` where the grant has ended, or is not for this use. L2 */
  async during<T>(work: () => Promise<T>, use = "egress"): Promise<T> {
    this.#busy += 1;
    try {
      const { type } = await this.#grants.check(this.#authorization, use);
      if (type === "refused") throw new Denied("ended");
      return await work();
    } finally {
      this.#busy -= 1;
    }
  }
}

/** The lines that are open. L3 */
export class Lines {
  readonly #open = new Map<Duplex, { readonly session: string; readonly controller: AbortController; line: Line | null }>();
  readonly #ofSession = new Map<string, number>();

  lineOf(socket: Duplex): Line | null {
    return this.#open.get(socket)?.line ?? null;
  }

  hasRoom(session: string): boolean {
    return this.#open.size < LINES_MAX && (this.#ofSession.get(session) ?? 0) < LINES_PER_SESSION_MAX;
  }

  /** Keeps a connection until it closes; gives the signal of its end. */
  add(socket: Duplex, session: string): AbortSignal {
    const controller = new AbortController();
    this.#open.set(socket, { session, controller, line: null });
    this.#ofSession.set(session, (this.#ofSession.get(session) ?? 0) + 1);
    socket.once("close", () => {
      this.#open.delete(socket);
      const left = (this.#ofSession.get(session) ?? 1) - 1;
      if (left === 0) this.#ofSession.delete(session);
      else this.#ofSession.set(session, left);
      controller.abort(new Denied("ended"));
    });
    return controller.signal;
  }

  set(socket: Duplex, line: Line): void {
    const kept = this.#open.get(socket);
    if (kept !== undefined) kept.line = line;
  }

  /** L2 */
  cut(session: string): void {
    for (const [socket, kept] of this.#open) if (kept.session === session) socket.destroy();
  }

  /** Those that do nothing, or all. */
  close(which: "idle" | "all"): void {
    for (const [socket, { line }] of this.#open) if (which === "all" || line === null || !line.isBusy) socket.destroy();
  }
}

/** Reads the policy off the line; null: it did not come whole and in time, or is not the grant's. What was read beyond it goes back. L1 */
export async function readPolicy(socket: Duplex, hash: string): Promise<Policy | null> {
  const bytes = await firstBytes(socket, (held) => {
    if (held.length < LENGTH_BYTES) return null;
    const length = held.readUInt32BE(0);
    return length > POLICY_BYTES_MAX ? "wrong" : LENGTH_BYTES + length;
  });
  return bytes === null ? null : Policy.read(bytes.subarray(LENGTH_BYTES).toString("utf8"), hash);
}

/** The first bytes of a connection, as many as `wants` says; the rest is put back. Null: they did not come. */
export function firstBytes(socket: Duplex, wants: (held: Buffer) => number | null | "wrong", waitMs = POLICY_MS): Promise<Buffer | null> {
  return new Promise((resolve) => {
    let held = Buffer.alloc(0);
    const end = (bytes: Buffer | null) => {
      clearTimeout(timer);
      socket.off("readable", look);
      socket.off("end", none);
      socket.off("close", none);
      resolve(bytes);
    };
    const none = () => end(null);
    const look = () => {
      for (let piece: Buffer | null = socket.read(); piece !== null; piece = socket.read()) held = Buffer.concat([held, piece]);
      const wanted = wants(held);
      if (wanted === "wrong") return end(null);
      if (wanted === null || held.length < wanted) return;
      end(held.subarray(0, wanted));
      if (held.length > wanted) socket.unshift(held.subarray(wanted));
    };
    const timer = setTimeout(none, waitMs);
    socket.on("readable", look);
    socket.once("end", none);
    socket.once("close", none);
    look();
  });
}
