// The ids that a path can hold. One that can't be of its kind is unknown, not malformed (contract §22).

import { z } from "zod";
import { HandName } from "../../hands/registry.ts";

const idOf = (prefix: string) => z.string().regex(new RegExp(`^${prefix}_[0-9A-Za-z]{1,64}$`));

export const PATH_IDS = {
  agent: { schema: idOf("agent"), code: "not_found", says: "There is no such agent." },
  environment: { schema: idOf("env"), code: "not_found", says: "There is no such environment." },
  // A schema of its own: one that stands in a body as well would be a reference there.
  hand: { schema: HandName.clone(), code: "not_found", says: "There is no such hand." },
  resource: { schema: idOf("sesrsc"), code: "not_found", says: "There is no such resource." },
  session: { schema: idOf("sesn"), code: "session_not_found", says: "There is no such session." },
  thread: { schema: idOf("sthr"), code: "not_found", says: "There is no such thread." },
} as const;

export type PathIdKind = keyof typeof PATH_IDS;

/** The parameters of a path, by name: what each one names. */
export type PathIds = Readonly<Record<string, PathIdKind>>;

export const isIdOf = (kind: PathIdKind, text: string): boolean => PATH_IDS[kind].schema.safeParse(text).success;
