// The version of this installation, as package.json says it.

import { readFileSync } from "node:fs";

export function version(): string {
  for (const up of ["../package.json", "../../package.json"]) {
    try {
      const read: unknown = JSON.parse(readFileSync(new URL(up, import.meta.url), "utf8"));
      if (typeof read === "object" && read !== null && "version" in read) return String(read.version);
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error;
    }
  }
  return "unknown";
}
