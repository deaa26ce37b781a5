// Why a running turn was told to stop. It is the reason of the turn's abort signal, and whatever the harness awaits rejects with it (H4).

export type StopKind =
  /** A client's interrupt is on its way: the turn ends as a normal stop. */
  | "interrupted"
  /** Another worker may hold the session by now: nothing may be written any more. */
  | "lease_lost"
  /** This process goes away: the session is handed over. */
  | "shutdown"
  /** The host ended the turn: its limits are reached. */
  | "limit";

export class Stop extends Error {
  override readonly name = "Stop";
  readonly kind: StopKind;

  constructor(kind: StopKind, options?: ErrorOptions) {
    super(`The turn was stopped: ${kind}.`, options);
    this.kind = kind;
  }
}

/** Rejects with the signal's reason when it aborts; for races, it never resolves. `off` removes the listener. */
export function aborted(signal: AbortSignal): { readonly promise: Promise<never>; readonly off: () => void } {
  let listener = () => {};
  const promise = new Promise<never>((_, reject) => {
    listener = () => reject(signal.reason);
    if (signal.aborted) listener();
    else signal.addEventListener("abort", listener, { once: true });
  });
  // Raced where somebody waits; elsewhere nobody has to listen.
  promise.catch(() => {});
  return { promise, off: () => signal.removeEventListener("abort", listener) };
}

/** Waits `ms`, or rejects with the signal's reason. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}

/** Aborts the controller with the source. Gives what ends that. */
export function passOn(source: AbortSignal, controller: AbortController): () => void {
  const pass = () => controller.abort(source.reason);
  if (source.aborted) pass();
  source.addEventListener("abort", pass, { once: true });
  return () => source.removeEventListener("abort", pass);
}
