// The bounds of what a server may send and how long it may take. Times are defaults; the operator may set others.

/** Until a server answers its first request. */
export const CONNECT_MS = 30_000;
/** A call without a word of the server, progress included. */
export const IDLE_MS = 120_000;
/** A call in all. */
export const TOTAL_MS = 1_800_000;
export const CLOSE_MS = 1_000;

/** Of one answer: a body, the stream of one request, a line of a child. */
export const ANSWER_BYTES_MAX = 64 * 1024 * 1024;
/** Of what comes unasked on one connection (notices, stray lines) in FLOOD_MS; more ends it. */
export const MESSAGES_MAX = 20_000;
export const FLOOD_MS = 10_000;
/** Of the pictures and documents of one result. */
export const MEDIA_BYTES_MAX = 20 * 1024 * 1024;

export const PAGES_MAX = 200;
export const TOOLS_MAX = 1_000;
/** Of a list's entries, also those that come twice or can't be used. */
export const ENTRIES_MAX = 10_000;
export const LIST_BYTES_MAX = 2 * 1024 * 1024;
export const SCHEMA_BYTES_MAX = 64 * 1024;
export const SCHEMA_DEPTH_MAX = 32;
export const DESCRIPTION_CHARS_MAX = 8_000;
export const NOTES_MAX = 20;

export const STDERR_CHARS_MAX = 16_384;
export const REASON_CHARS_MAX = 500;
