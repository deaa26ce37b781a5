// Where a sandbox's paths are on the disk, and which there are.
//
//   P1  A path leads to a file below one of the roots of this sandbox, or is refused; `..` and links are followed before that is decided.

import { mkdirSync, realpathSync } from "node:fs";
import { realpath } from "node:fs/promises";
import { dirname, join, posix, sep } from "node:path";
import { ToolError } from "./answer.ts";

export const WORKSPACE = "/workspace";

/** Sandbox path → folder inside the hand's folder. */
const ROOTS = { [WORKSPACE]: "workspace", "/mnt/session": "session", "/tmp": "tmp" } as const;

/** Makes the folders of a hand and gives the roots to be found in them. */
export function layOut(folder: string): Readonly<Record<keyof typeof ROOTS, string>> {
  for (const made of ["session/uploads", "session/outputs"]) mkdirSync(join(folder, made), { recursive: true });
  const root = (mountPoint: keyof typeof ROOTS): string => {
    mkdirSync(join(folder, ROOTS[mountPoint]), { recursive: true });
    return join(folder, ROOTS[mountPoint]);
  };
  return { [WORKSPACE]: root(WORKSPACE), "/mnt/session": root("/mnt/session"), "/tmp": root("/tmp") };
}

export interface Place {
  /** As the sandbox sees it: absolute, without `.` and `..`. */
  readonly path: string;
  readonly real: string;
}

export class Places {
  readonly mounts: readonly { readonly mountPoint: string; readonly root: string }[];

  /** Sandbox path → folder of the disk. */
  constructor(roots: Readonly<Record<string, string>>) {
    this.mounts = Object.entries(roots).map(([mountPoint, root]) => ({ mountPoint, root: realpathSync(root) }));
  }

  /** Relative paths start at /workspace. P1 */
  async find(given: string): Promise<Place> {
    const path = posix.resolve(WORKSPACE, given);
    const mount = this.mounts.find(({ mountPoint }) => path === mountPoint || path.startsWith(`${mountPoint}/`));
    if (mount === undefined) throw new ToolError(`${path} is outside of ${this.mounts.map(({ mountPoint: name }) => name).join(", ")}`);
    const real = join(mount.root, path.slice(mount.mountPoint.length));
    const anchor = await deepest(real);
    if (anchor !== mount.root && !anchor.startsWith(mount.root + sep)) throw new ToolError(`${path} is a link out of the sandbox`);
    return { path, real };
  }
}

/** The real path of the longest part of a path that exists. */
async function deepest(path: string): Promise<string> {
  for (let part = path; ; part = dirname(part)) {
    try {
      return await realpath(part);
    } catch (error) {
      const code = codeOf(error);
      if (code === "ENOTDIR") throw new ToolError("a part of the path is a file, not a folder");
      if (code === "ELOOP") throw new ToolError("the path is a loop of links");
      if (code === "ENAMETOOLONG") throw new ToolError("the path is too long");
      if (code !== "ENOENT" || part === dirname(part)) throw error;
    }
  }
}

export function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}
