// The search: which canaries stand in which bytes. What it says of a finding is the surface, a place, the canary's name and the encoding: never its text.
//
//   Q1  A finding is the anchor in any spelling; whose it was is told by what follows. An anchor that nothing known follows is a finding as well.
//   Q2  Pieces of one stream overlap by more than the longest needle, so that a cut hides nothing.

import { type Canaries, plantName } from "./canaries.ts";
import { ENCODINGS } from "./encodings.ts";
import { Finder } from "./finder.ts";
import { inOneLine, unpack } from "./unpack.ts";

export interface Finding {
  readonly surface: string;
  /** Where on the surface; made by us, of no text that was read. */
  readonly place: string;
  readonly canary: string;
  readonly encoding: string;
}

/** Something that is read on a surface. `isPlain`: it is memory or the like, which is not unpacked. */
export interface Piece {
  readonly place: string;
  readonly bytes: Buffer;
  readonly isPlain?: boolean;
}

const DEPTH_MAX = 3;
/** Findings of one surface that are kept: a leak in a loop would fill the memory. */
const FINDINGS_MAX = 20_000;
export const OVERLAP_BYTES = 4_096;

interface Needle {
  readonly encoding: string;
  readonly bytes: Buffer;
  readonly isBackward: boolean;
  /** What is told where nothing known follows. */
  readonly part: string;
  /** Names by the spelling of whole canaries, and of beginnings that are some canary's alone; one map for each length. */
  readonly names: ReadonlyMap<number, ReadonlyMap<string, string>>;
}

const PART = "a part of one";
const PLANTED_PART = plantName("somewhere", "in part");

export class Search {
  readonly findings: Finding[] = [];
  /** By surface: how many bytes were looked at. */
  readonly looked = new Map<string, number>();
  readonly #finder: Finder<Needle>;
  readonly #seen = new Set<string>();

  /** For the canaries that there are by now. */
  constructor(canaries: Canaries) {
    const needles = [canaries.anchor, canaries.plantAnchor].flatMap((anchor) => {
      const own = [...canaries.all].filter(([, secret]) => secret.startsWith(anchor));
      const part = anchor === canaries.anchor ? PART : PLANTED_PART;
      return ENCODINGS.flatMap((encoding) => {
        const spelled = own.map(([name, secret]) => [name, [secret, canaries.beginningOf(secret)].map(encoding.needles)] as const);
        return encoding.needles(anchor).map((bytes, at): Needle => {
          const names = new Map<number, Map<string, string>>();
          for (const [name, needle] of spelled.flatMap(([name, all]) => all.map((each) => [name, each[at]] as const))) {
            const text = needle?.toString("latin1") ?? "";
            names.set(text.length, (names.get(text.length) ?? new Map<string, string>()).set(text, name));
          }
          return { encoding: encoding.name, bytes, isBackward: encoding.isBackward === true, part, names };
        });
      });
    });
    this.#finder = new Finder(needles);
  }

  look(surface: string, { place, bytes, isPlain = false }: Piece): void {
    this.looked.set(surface, (this.looked.get(surface) ?? 0) + bytes.length);
    this.#look(surface, place, bytes, isPlain ? DEPTH_MAX : 0);
  }

  /** What of these names was found on the surface. */
  namesOn(surface: string): ReadonlySet<string> {
    return new Set(this.findings.filter((finding) => finding.surface === surface).map(({ canary }) => canary));
  }

  #look(surface: string, place: string, bytes: Buffer, depth: number): void {
    this.#finder.find(bytes, (needle, at) => this.#found({ surface, place, canary: nameAt(needle, bytes, at), encoding: needle.encoding }));
    if (depth >= DEPTH_MAX) return;
    const flat = inOneLine(bytes);
    if (flat !== null) this.#look(surface, place, flat, DEPTH_MAX);
    for (const inner of unpack(bytes)) this.#look(surface, place, inner, depth + 1);
    if (flat !== null) for (const inner of unpack(flat)) this.#look(surface, place, inner, depth + 1);
  }

  /** A place is told if it gives nothing away itself. */
  #isTold(place: string): boolean {
    let isClean = true;
    this.#finder.find(Buffer.from(place), () => {
      isClean = false;
    });
    return isClean;
  }

  #found(finding: Finding): void {
    const told = this.#isTold(finding.place) ? finding : { ...finding, place: "a name that holds one" };
    const key = JSON.stringify(told);
    if (this.#seen.has(key) || this.findings.length >= FINDINGS_MAX) return;
    this.#seen.add(key);
    this.findings.push(told);
  }
}

/** Q1 */
function nameAt({ bytes: needle, isBackward, part, names }: Needle, bytes: Buffer, at: number): string {
  for (const [length, ofLength] of names) {
    const from = isBackward ? at + needle.length - length : at;
    if (from < 0) continue;
    const text = bytes.toString("latin1", from, from + length);
    const name = ofLength.get(text) ?? ofLength.get(text.replaceAll("-", "+").replaceAll("_", "/"));
    if (name !== undefined) return name;
  }
  return part;
}
