// Documents: what is configured, not logged (agents, environments, uses of them). One workspace's documents change in one step.
//
//   K1  `put` is all or none; each write names the revision it replaces (0 = there is none yet).
//   K2  Lists are ordered by (createdAt, id); createdAt is stamped at the first put and grows strictly within a workspace and kind.
//   K3  A `name` is unique among the documents of its kind in the workspace that hold one; a write with null gives it back.

export interface Document {
  readonly kind: string;
  readonly id: string;
  readonly revision: number;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly isArchived: boolean;
  readonly body: unknown;
}

export interface DocumentWrite {
  readonly kind: string;
  readonly id: string;
  readonly body: unknown;
  /** The revision that this write replaces; another one there: `document_changed`. */
  readonly replaces: number;
  readonly isArchived?: boolean;
  /** The unique name it holds from now on (`name_taken`); null or absent: none. */
  readonly name?: string | null;
}

export interface PutOptions {
  /** Documents that must be there and not archived, or nothing is written (`document_not_found`). */
  readonly requires?: readonly { readonly kind: string; readonly id: string }[];
}

export interface DocumentQuery {
  readonly order: "asc" | "desc";
  readonly limit: number;
  readonly beyond?: { readonly createdAt: number; readonly id: string };
  readonly createdAt?: { readonly gt?: number; readonly gte?: number; readonly lt?: number; readonly lte?: number };
  readonly includeArchived?: boolean;
}

export interface Documents {
  put(workspace: string, writes: readonly DocumentWrite[], options?: PutOptions): Promise<readonly Document[]>;
  get(workspace: string, kind: string, id: string): Promise<Document | null>;
  list(workspace: string, kind: string, query: DocumentQuery): Promise<readonly Document[]>;
  /** Removes a document; with `unlessAny`, only while no document of that kind is there (`document_in_use`). Absent: `document_not_found`. */
  discard(workspace: string, kind: string, id: string, options?: { readonly unlessAny?: string }): Promise<void>;
}
