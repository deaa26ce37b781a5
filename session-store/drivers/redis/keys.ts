// Names of keys and channels.
//
//   Y1  Every key of a session and of its partition carries the partition's hash tag, and every key of a workspace the workspace's:
//       one step touches one slot.
//   Y2  The partition follows from the suffix of the id alone, so that a session's threads lie where it does.

import type { SessionId, Topic } from "../../ids.ts";

/** Kept in the store: an installation never changes it. */
export const PARTITIONS = 16;

export const INSTALLATION = "mh:installation";
export const PING = "mh:ping";
/** The channel that rings when something may have become due. */
export const DUE_BELL = "mh:bell:due";

export interface SessionKeys {
  readonly log: string;
  readonly meta: string;
  readonly ids: string;
  readonly due: string;
  readonly bell: string;
}

export function keysOf(id: SessionId): SessionKeys {
  const tag = tagOf(partitionOf(id));
  return { log: `${tag}:log:${id}`, meta: `${tag}:meta:${id}`, ids: `${tag}:ids:${id}`, due: `${tag}:due`, bell: channelOf(id) };
}

/** The channel of a session's or a topic's bell. */
export const channelOf = (id: SessionId | Topic): string => `mh:bell:${id}`;

/** Y2 */
export function partitionOf(id: string): number {
  let hash = 0x811c9dc5;
  for (let index = id.indexOf("_") + 1; index < id.length; index++) hash = Math.imul(hash ^ id.charCodeAt(index), 0x01000193);
  return ((hash ^ (hash >>> 16)) >>> 0) % PARTITIONS;
}

export const partitions = (): readonly number[] => Array.from({ length: PARTITIONS }, (_, partition) => partition);
export const dueKey = (partition: number): string => `${tagOf(partition)}:due`;
export const metaPrefix = (partition: number): string => `${tagOf(partition)}:meta:`;
export const takenKey = (partition: number, host: string, nonce: string): string => `${tagOf(partition)}:taken:${encodeURIComponent(host)}:${nonce}`;
export const retryKey = (id: SessionId, digest: string): string => `${tagOf(partitionOf(id))}:retry:${id}:${digest}`;
export const indexKey = (partition: number, workspace: string): string => `${tagOf(partition)}:index:${encodeURIComponent(workspace)}`;

export interface KindKeys {
  /** Documents of the kind, by time of creation. */
  readonly index: string;
  /** Unique name -> id. */
  readonly names: string;
}

export function kindKeys(workspace: string, kind: string): KindKeys {
  const tag = workspaceTag(workspace);
  return { index: `${tag}:index:${kind}`, names: `${tag}:names:${kind}` };
}

export const documentKey = (workspace: string, kind: string, id: string): string => `${workspaceTag(workspace)}:doc:${kind}:${id}`;
export const clockKey = (workspace: string): string => `${workspaceTag(workspace)}:clock`;
export const answerKey = (workspace: string, nonce: string): string => `${workspaceTag(workspace)}:answer:${nonce}`;

const tagOf = (partition: number): string => `mh:{p${partition}}`;
/** Encoded, so that a name can't end the tag. */
const workspaceTag = (workspace: string): string => `mh:{w:${encodeURIComponent(workspace)}}`;
