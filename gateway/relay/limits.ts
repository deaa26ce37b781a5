// The bounds of relaying. Times are defaults: the operator, and a hand's record, may set others.

export const CONNECT_MS = 30_000;
/** A call without a byte of the hand, progress included. */
export const IDLE_MS = 120_000;
/** A call in all. */
export const TOTAL_MS = 1_800_000;
/** Until a hand says which revisions it speaks, or answers `initialize`. */
export const HELLO_MS = 30_000;
/** What goes beside a client's own request: the end of a session, a refusal to the hand. */
export const ASIDE_MS = 5_000;
/** For a client to take what is ready for it. */
export const SLOW_MS = 30_000;

/** Of one answer; a stream that stays open is counted from event to event. */
export const ANSWER_BYTES_MAX = 64 * 1024 * 1024;
/** Of what is collected before it is sent on: the answer to `initialize`, a list that is filtered, the body of an error. */
export const COLLECTED_BYTES_MAX = 16 * 1024 * 1024;
/** Of a message that is looked into before it goes on. A longer one goes on as it comes once its beginning shows what it is. */
export const LOOKED_AT_BYTES_MAX = 1024 * 1024;

/** To one hand; each stream that a client keeps open holds one. */
export const CONNECTIONS_MAX = 4_096;
/** Of all hands, on this node. */
export const STREAMS_MAX = 10_000;
