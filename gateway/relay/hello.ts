// What is read and said of `initialize`.

export const JSON_HEADERS = { accept: "application/json, text/event-stream", "content-type": "application/json" } as const;

/** The revision that a hand agreed on; null: it did not. */
export function versionIn(result: unknown): string | null {
  if (typeof result !== "object" || result === null || !("protocolVersion" in result)) return null;
  return typeof result.protocolVersion === "string" ? result.protocolVersion.slice(0, 64) : null;
}

export function capabilitiesIn(hello: string): unknown {
  const params: unknown = JSON.parse(hello);
  return typeof params === "object" && params !== null && "capabilities" in params ? params.capabilities : {};
}
