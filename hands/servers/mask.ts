// What an operator's file puts into a child's environment is often a credential, and a child may say it back. It is in no line that we log or tell.

/** Shorter values are words that stand everywhere. */
const CHARS_MIN = 8;
const MASK = "***";

/** `secrets`: values of a child's environment. */
export function masked(text: string, secrets: readonly string[]): string {
  const long = secrets.filter((secret) => secret.length >= CHARS_MIN).sort((one, other) => other.length - one.length);
  return long.reduce((left, secret) => left.replaceAll(secret, MASK), text);
}
