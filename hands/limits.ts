// The limits that a model is told about: the toolset's words and every sandbox read them here. This file imports nothing, so that code which runs
// inside of a container can have it too.

export const TIMEOUT_MS_DEFAULT = 120_000;
export const TIMEOUT_MS_MAX = 600_000;
/** For the tools that have no time-out of their own. */
export const FILE_TOOL_TIMEOUT_MS = 60_000;
/** Output over this many characters goes to a file in the sandbox; the model gets its head, its tail and the path. */
export const OUTPUT_CHARS_MAX = 100_000;
export const GLOB_PATHS_MAX = 1_000;
export const GREP_LINES_MAX = 1_000;
