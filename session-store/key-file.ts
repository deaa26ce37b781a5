// A key file of an installation: one line of text, made by the launcher or put there by the operator.

import { readFile } from "node:fs/promises";

export type KeyFile = { readonly type: "key"; readonly text: string } | { readonly type: "unusable"; readonly why: string };

/** Reads a key file. `why` finishes the sentence "the file …" and quotes nothing of it. */
export async function readKeyFile(file: string): Promise<KeyFile> {
  let text: string;
  try {
    text = (await readFile(file, "utf8")).trim();
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : null;
    return { type: "unusable", why: code === "ENOENT" ? "is missing" : `can't be read (${code ?? "no reason given"})` };
  }
  return text === "" ? { type: "unusable", why: "is empty" } : { type: "key", text };
}
