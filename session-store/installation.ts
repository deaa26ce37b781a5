// Which keys an installation has, as its store remembers: nodes with other keys would mint grants and call hands that nobody takes.
//
//   I1  The first node to start writes the fingerprints; a node with others refuses to start. The API key is not among them: it may be changed.

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import type { Documents } from "./documents.ts";
import { Refusal } from "./refusal.ts";

const PLACE = { workspace: "manyhands", kind: "installation", id: "keys" } as const;
const FILES = { hand: "hand.key", grant: "grant.public.jwk" } as const;

/** What tells two sets of keys apart and opens nothing. */
const Fingerprints = z.strictObject({ hand: z.string(), grant: z.string() });
type Fingerprints = z.infer<typeof Fingerprints>;

/** Compares the keys in `keysDir` with those that the store knows; refuses (`store_unfit`) when they differ. I1 */
export async function checkInstallation(store: Pick<Documents, "get" | "put">, keysDir: string): Promise<void> {
  const mine = { hand: await fingerprint(keysDir, FILES.hand), grant: await fingerprint(keysDir, FILES.grant) };
  const { workspace, kind, id } = PLACE;
  const known = await store.get(workspace, kind, id);
  if (known) return compare(known.body, mine);
  try {
    await store.put(workspace, [{ kind, id, body: mine, replaces: 0 }]);
  } catch (error) {
    if (!(error instanceof Refusal) || error.code !== "document_changed") throw error;
    // Another node's first start came between.
    compare((await store.get(workspace, kind, id))?.body, mine);
  }
}

async function fingerprint(keysDir: string, name: string): Promise<string> {
  const key = (await readFile(join(keysDir, name), "utf8")).trim();
  return createHash("sha256").update(`${name}\n${key}`).digest("base64url");
}

function compare(body: unknown, mine: Fingerprints): void {
  const known = Fingerprints.safeParse(body);
  if (known.success && known.data.hand === mine.hand && known.data.grant === mine.grant) return;
  throw new Refusal(
    "store_unfit",
    "This store belongs to an installation with other keys. All nodes of an installation share one MANYHANDS_KEYS_DIR; point it at that folder.",
  );
}
