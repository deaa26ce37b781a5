// A place on a network, as a program in a hand names it: a host and a port, in one spelling.
//
//   P1  There is one way to write a host. What other programs read as an address though it does not look like one (decimal, octal, hexadecimal or
//       shortened IPv4), a trailing dot, a user name, a zone or a stray character is refused here, before any list is asked.

import { isIP } from "node:net";

const HOST_CHARS_MAX = 253;
const LABEL = /^(?!-)[a-z0-9_-]{1,63}(?<!-)$/;
/** A name whose last label is a number is read as an address by some resolvers. */
const NUMBER = /^(?:\d+|0x[0-9a-f]*)$/;

export interface Place {
  /** Lower case; IPv6 without brackets, in its shortest spelling. */
  readonly host: string;
  readonly port: number;
  /** `host:port`, as it is said in messages and addresses. */
  readonly text: string;
}

/** Reads `host:port`, or `host` where a port is implied; null: it is no place. P1 */
export function placeOf(authority: string, impliedPort: number | null): Place | null {
  const [, name = "", digits] = /^(\[[0-9a-f:.]+\]|[^:[\]]*)(?::(\d{1,5}))?$/i.exec(authority) ?? [];
  const port = digits === undefined ? impliedPort : Number(digits);
  const host = hostOf(name.toLowerCase());
  if (host === null || port === null || port < 1 || port > 65_535) return null;
  return { host, port, text: `${isIP(host) === 6 ? `[${host}]` : host}:${port}` };
}

function hostOf(name: string): string | null {
  if (name.startsWith("[")) {
    const text = `http://${name}/`;
    return URL.canParse(text) ? new URL(text).hostname.slice(1, -1) : null;
  }
  if (isIP(name) === 4) return name;
  const labels = name.split(".");
  const isName = name.length <= HOST_CHARS_MAX && labels.every((label) => LABEL.test(label)) && !NUMBER.test(labels.at(-1) ?? "");
  return isName ? name : null;
}
