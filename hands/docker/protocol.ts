// What the hand host and the runner in a container say to each other, and where things are in there. Used by both sides, so it imports types only.

import type { HandTool } from "../toolset.ts";

/** Where the runner's program lies in a container. */
export const RUNNER_FOLDER = "/opt/manyhands";
/** The folder of the one socket that leads out. */
export const DOOR_FOLDER = "/run/manyhands";
export const DOOR_SOCKET = `${DOOR_FOLDER}/door.sock`;
/** Where programs in a container find the door: the runner listens here and pipes to the socket. */
export const DOOR_PORT = 3128;

export type ToRunner =
  | {
      readonly type: "run";
      /** The host's own number for the call. */
      readonly n: number;
      /** The tool use's id: names the file of a long output. */
      readonly id: string;
      readonly tool: HandTool;
      /** Already read by the tool's schema. */
      readonly input: unknown;
      readonly timeoutMs: number;
    }
  | { readonly type: "cancel"; readonly n: number }
  | { readonly type: "ping" };

export type FromRunner =
  | { readonly type: "ready" }
  | { readonly type: "pong" }
  | { readonly type: "done"; readonly n: number; readonly content: readonly unknown[]; readonly isError: boolean }
  | { readonly type: "failed"; readonly n: number; readonly reason: string }
  /** It was cancelled, and nothing of it runs any more. */
  | { readonly type: "cancelled"; readonly n: number };
