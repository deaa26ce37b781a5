// Documents: a hash each; an index, names and a clock a kind; all of a workspace in one slot.

import { randomUUID } from "node:crypto";
import type { Document, DocumentQuery, Documents, DocumentWrite, PutOptions } from "../../documents.ts";
import { Refusal } from "../../refusal.ts";
import type { Answer, Commands } from "./commands.ts";
import { answerKey, clockKey, documentKey, kindKeys } from "./keys.ts";
import { page } from "./listing.ts";
import { list, text, whole } from "./reply.ts";

const ANSWER_KEPT_MS = 60_000;
const FIELDS = ["revision", "created", "updated", "archived", "body"] as const;

export class RedisDocuments implements Documents {
  readonly #commands: Commands;

  constructor(commands: Commands) {
    this.#commands = commands;
  }

  async put(workspace: string, writes: readonly DocumentWrite[], { requires = [] }: PutOptions = {}): Promise<readonly Document[]> {
    const keys = [
      answerKey(workspace, randomUUID()),
      clockKey(workspace),
      ...writes.flatMap(({ kind, id }) => [documentKey(workspace, kind, id), kindKeys(workspace, kind).index, kindKeys(workspace, kind).names]),
      ...requires.map(({ kind, id }) => documentKey(workspace, kind, id)),
    ];
    const args = writes.flatMap(({ kind, id, replaces, isArchived = false, name, body }) => [
      ...[kind, id, replaces, isArchived ? 1 : 0, name ?? "", JSON.stringify(body)],
    ]);
    const answer = await this.#commands.step("put-documents", keys, [ANSWER_KEPT_MS, writes.length, ...args]);
    if (answer.word !== "ok") throw refused(answer);
    const places = list(answer.rest[0]);
    return writes.map(({ kind, id, isArchived = false, body }, index) => {
      const [revision, createdAt, updatedAt] = text(places[index]).split(" ");
      return { kind, id, revision: whole(revision), createdAt: whole(createdAt), updatedAt: whole(updatedAt), isArchived, body };
    });
  }

  async get(workspace: string, kind: string, id: string): Promise<Document | null> {
    const [fields] = await this.#commands.read([["HMGET", documentKey(workspace, kind, id), ...FIELDS]]);
    return documentOf(kind, id, fields);
  }

  async list(workspace: string, kind: string, query: DocumentQuery): Promise<readonly Document[]> {
    return await page(this.#commands, [kindKeys(workspace, kind).index], query, async (ids) => {
      const hashes = await this.#commands.read(ids.map((id) => ["HMGET", documentKey(workspace, kind, id), ...FIELDS]));
      return hashes.map((fields, index) => {
        const document = documentOf(kind, text(ids[index]), fields);
        return document && (query.includeArchived === true || !document.isArchived) ? document : null;
      });
    });
  }

  async discard(workspace: string, kind: string, id: string, { unlessAny }: { readonly unlessAny?: string } = {}): Promise<void> {
    const { index, names } = kindKeys(workspace, kind);
    const others = kindKeys(workspace, unlessAny ?? kind).index;
    const keys = [answerKey(workspace, randomUUID()), documentKey(workspace, kind, id), index, names, others];
    const answer = await this.#commands.step("discard-document", keys, [ANSWER_KEPT_MS, id, unlessAny === undefined ? 0 : 1]);
    if (answer.word !== "ok") throw refused(answer);
  }
}

const REFUSED = { changed: "document_changed", taken: "name_taken", not_found: "document_not_found", in_use: "document_in_use" } as const;

function refused(answer: Answer): Error {
  const code = REFUSED[answer.word as keyof typeof REFUSED];
  return code ? new Refusal(code) : new TypeError(`a step answered "${answer.word}"`);
}

/** `body` is what `put` wrote; null when there is no such document. */
function documentOf(kind: string, id: string, fields: unknown): Document | null {
  const [revision, created, updated, archived, body] = list(fields);
  if (revision === null) return null;
  return {
    kind,
    id,
    revision: whole(revision),
    createdAt: whole(created),
    updatedAt: whole(updated),
    isArchived: archived === "1",
    body: JSON.parse(text(body)),
  };
}
