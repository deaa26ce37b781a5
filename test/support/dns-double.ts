// A name server of a test's own, over UDP: it answers for the names that it was told, a lookup at a time, and says that there are no others.

import { createSocket, type RemoteInfo } from "node:dgram";
import { once } from "node:events";
import { isIPv4 } from "node:net";

const HEADER_BYTES = 12;
const TYPES = { A: 1, AAAA: 28 } as const;
const ANSWERED = 0x8180;
const NO_SUCH_NAME = 0x8183;

export interface DnsDouble {
  /** What a name means at its first lookup, its second …; the last one stays. */
  tell(name: string, ...lookups: readonly (readonly string[])[]): void;
  /** How often a name was looked up. */
  asked(name: string): number;
  close(): Promise<void>;
}

export async function startDns(address: string, port: number): Promise<DnsDouble> {
  const names = new Map<string, { readonly lookups: readonly (readonly string[])[]; readonly asked: Map<number, number> }>();
  const socket = createSocket("udp4");
  socket.on("message", (message: Buffer, from: RemoteInfo) => {
    const question = questionOf(message);
    const known = names.get(question.name);
    const before = known?.asked.get(question.type) ?? 0;
    known?.asked.set(question.type, before + 1);
    const meant = known?.lookups[Math.min(before, known.lookups.length - 1)] ?? [];
    const addresses = meant.filter((each) => (isIPv4(each) ? TYPES.A : TYPES.AAAA) === question.type);
    socket.send(answerOf(message, question.end, known === undefined ? null : addresses), from.port, from.address);
  });
  socket.bind(port, address);
  await once(socket, "listening");
  return {
    tell: (name, ...lookups) => void names.set(name, { lookups, asked: new Map() }),
    asked: (name) => names.get(name)?.asked.get(TYPES.A) ?? 0,
    close: () => new Promise((resolve) => socket.close(() => resolve())),
  };
}

function questionOf(message: Buffer): { readonly name: string; readonly type: number; readonly end: number } {
  const labels: string[] = [];
  let at = HEADER_BYTES;
  for (let length = message.readUInt8(at); length > 0; length = message.readUInt8(at)) {
    labels.push(message.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join(".").toLowerCase(), type: message.readUInt16BE(at + 1), end: at + 5 };
}

/** Null: there is no such name. Nothing may be kept: its time is 0. */
function answerOf(message: Buffer, end: number, addresses: readonly string[] | null): Buffer {
  const head = Buffer.from(message.subarray(0, end));
  head.writeUInt16BE(addresses === null ? NO_SUCH_NAME : ANSWERED, 2);
  head.writeUInt16BE(addresses?.length ?? 0, 6);
  head.writeUInt32BE(0, 8);
  const records = (addresses ?? []).map((each) => {
    const data = isIPv4(each) ? Buffer.from(each.split(".").map(Number)) : ipv6Of(each);
    const record = Buffer.alloc(12);
    record.writeUInt16BE(0xc000 + HEADER_BYTES, 0);
    record.writeUInt16BE(isIPv4(each) ? TYPES.A : TYPES.AAAA, 2);
    record.writeUInt16BE(1, 4);
    record.writeUInt16BE(data.length, 10);
    return Buffer.concat([record, data]);
  });
  return Buffer.concat([head, ...records]);
}

/** One `::` at most, no dotted part. */
function ipv6Of(text: string): Buffer {
  const [left = "", right] = text.split("::").map((half) => half.split(":").filter((each) => each !== ""));
  const groups = right === undefined ? left : [...left, ...Array<string>(8 - left.length - right.length).fill("0"), ...right];
  const bytes = Buffer.alloc(16);
  for (const [at, group] of [...groups].entries()) bytes.writeUInt16BE(Number.parseInt(group, 16), at * 2);
  return bytes;
}
