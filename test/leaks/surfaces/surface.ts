// A surface: a place where no secret may be. It is read by one function, whatever is there; what is planted is found by that function or by none.

import type { Program } from "../../support/process.ts";
import { ENCODINGS, type Encoding, MARKED, TEXTS } from "../encodings.ts";
import type { Played, Run } from "../scenario.ts";
import type { Piece } from "../search.ts";
import type { Tap } from "../wire.ts";

/** What there is to look at, and what was planted beside it. */
export interface Scene extends Run {
  readonly played: Played;
  /** When the run began, by Date.now(). */
  readonly startedAt: number;
  /** A container of a hand of this run. */
  readonly container: string;
  /** Beside the container's own: images with something planted in them. */
  readonly images: string[];
  /** Processes that stand beside the installation's own of the same role. */
  readonly beside: { readonly role: string; readonly program: Program }[];
  readonly taps: Tap[];
  /** Where pages are asked for: the gateway, and what was planted beside it. */
  readonly origins: string[];
  /** Ends what was planted. */
  readonly endings: (() => unknown)[];
}

export interface Planted {
  readonly encoding: string;
  readonly secret: string;
  /** The secret in that encoding. */
  readonly bytes: Buffer;
}

export interface Surface {
  readonly name: string;
  /** Those that can stand there. */
  readonly encodings: readonly Encoding[];
  read(scene: Scene): AsyncIterable<Piece> | Iterable<Piece>;
  plant(scene: Scene, planted: readonly Planted[]): Promise<void>;
}

/** All of it as one text. */
export const asText = (planted: readonly Planted[]): string => planted.map(({ bytes }) => bytes.toString("latin1")).join("\n\n");

export const asBytes = (planted: readonly Planted[]): Buffer => Buffer.concat(planted.flatMap(({ bytes }) => [bytes, Buffer.from("\n\n")]));

/** A surface that holds anything. */
export const ofBytes = (name: string, read: Surface["read"], plant: Surface["plant"]): Surface => ({ name, encodings: ENCODINGS, read, plant });
/** A surface that holds anything, but beside much else. */
export const ofMarked = (name: string, read: Surface["read"], plant: Surface["plant"]): Surface => ({ name, encodings: MARKED, read, plant });
/** A surface that holds text. */
export const ofText = (name: string, read: Surface["read"], plant: (scene: Scene, text: string) => Promise<void>): Surface => ({
  name,
  encodings: TEXTS,
  read,
  plant: (scene, planted) => plant(scene, asText(planted)),
});
