// Certificates, as bytes: one that signs others, and those for hosts. Written, never read: nothing from outside is parsed here.
//
//   C1  ECDSA on P-256 with SHA-256; version 3, with the extensions that strict clients ask for (basic constraints, key usage, key identifiers).

import { createHash, createPublicKey, type KeyObject, randomBytes, sign } from "node:crypto";
import { isIP, isIPv4 } from "node:net";

const DAY_MS = 86_400_000;
/** Clocks of hands and hosts differ. */
const BACKDATED_MS = DAY_MS;

const TAG = { boolean: 0x01, integer: 0x02, bits: 0x03, octets: 0x04, oid: 0x06, utf8: 0x0c, sequence: 0x30, set: 0x31, time: 0x18, utcTime: 0x17 };
const OID = {
  commonName: "2.5.4.3",
  ecdsaWithSha256: "1.2.840.10045.4.3.2",
  subjectKey: "2.5.29.14",
  keyUsage: "2.5.29.15",
  altName: "2.5.29.17",
  basicConstraints: "2.5.29.19",
  authorityKey: "2.5.29.35",
  extendedUsage: "2.5.29.37",
  serverAuth: "1.3.6.1.5.5.7.3.1",
};
const GENERALIZED_FROM = 2050;

export interface Issuer {
  readonly name: string;
  readonly key: KeyObject;
}

/** A certificate that signs those of hosts, and nothing below them. PEM. */
export function authorityCertificate(issuer: Issuer, days: number): string {
  return certificate({
    issuer,
    subject: issuer.name,
    subjectKey: createPublicKey(issuer.key),
    days,
    extensions: [
      extension(OID.basicConstraints, true, der(TAG.sequence, der(TAG.boolean, Buffer.of(0xff)), der(TAG.integer, Buffer.of(0)))),
      // keyCertSign, cRLSign
      extension(OID.keyUsage, true, der(TAG.bits, Buffer.of(1, 0b0000_0110))),
    ],
  });
}

/** A server's certificate for one host, a name or an address. PEM. */
export function hostCertificate(issuer: Issuer, host: string, key: KeyObject, days: number): string {
  const alternative = isIP(host) === 0 ? der(0x82, Buffer.from(host, "latin1")) : der(0x87, addressBytes(host));
  return certificate({
    issuer,
    subject: "manyhands egress",
    subjectKey: createPublicKey(key),
    days,
    extensions: [
      extension(OID.basicConstraints, true, der(TAG.sequence)),
      // digitalSignature
      extension(OID.keyUsage, true, der(TAG.bits, Buffer.of(7, 0b1000_0000))),
      extension(OID.extendedUsage, false, der(TAG.sequence, oid(OID.serverAuth))),
      extension(OID.altName, false, der(TAG.sequence, alternative)),
    ],
  });
}

interface Wanted {
  readonly issuer: Issuer;
  readonly subject: string;
  readonly subjectKey: KeyObject;
  readonly days: number;
  readonly extensions: readonly Buffer[];
}

function certificate({ issuer, subject, subjectKey, days, extensions }: Wanted): string {
  const algorithm = der(TAG.sequence, oid(OID.ecdsaWithSha256));
  const now = Date.now();
  const issuerKey = createPublicKey(issuer.key);
  const body = der(
    TAG.sequence,
    der(0xa0, der(TAG.integer, Buffer.of(2))),
    der(TAG.integer, serialNumber()),
    algorithm,
    nameOf(issuer.name),
    der(TAG.sequence, time(now - BACKDATED_MS), time(now + days * DAY_MS)),
    nameOf(subject),
    spki(subjectKey),
    der(
      0xa3,
      der(
        TAG.sequence,
        ...extensions,
        extension(OID.subjectKey, false, der(TAG.octets, keyId(subjectKey))),
        extension(OID.authorityKey, false, der(TAG.sequence, der(0x80, keyId(issuerKey)))),
      ),
    ),
  );
  const signature = sign("sha256", body, issuer.key);
  const whole = der(TAG.sequence, body, algorithm, der(TAG.bits, Buffer.of(0), signature));
  const lines = whole.toString("base64").match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}

/** Tag, length, value. */
function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const value = Buffer.concat(parts);
  if (value.length < 0x80) return Buffer.concat([Buffer.of(tag, value.length), value]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(value.length);
  const short = length.subarray(length.findIndex((byte) => byte !== 0));
  return Buffer.concat([Buffer.of(tag, 0x80 | short.length), short, value]);
}

function oid(text: string): Buffer {
  const [first = 0, second = 0, ...rest] = text.split(".").map(Number);
  const bytes = [first * 40 + second, ...rest].flatMap((arc) => {
    const groups = [arc & 0x7f];
    for (let left = arc >>> 7; left > 0; left >>>= 7) groups.unshift((left & 0x7f) | 0x80);
    return groups;
  });
  return der(TAG.oid, Buffer.from(bytes));
}

const extension = (id: string, isCritical: boolean, value: Buffer): Buffer =>
  der(TAG.sequence, oid(id), ...(isCritical ? [der(TAG.boolean, Buffer.of(0xff))] : []), der(TAG.octets, value));

const nameOf = (commonName: string): Buffer =>
  der(TAG.sequence, der(TAG.set, der(TAG.sequence, oid(OID.commonName), der(TAG.utf8, Buffer.from(commonName, "utf8")))));

function time(ms: number): Buffer {
  const digits = new Date(ms).toISOString().replace(/[-:T]|\.\d+/g, "");
  return Number(digits.slice(0, 4)) < GENERALIZED_FROM
    ? der(TAG.utcTime, Buffer.from(digits.slice(2), "latin1"))
    : der(TAG.time, Buffer.from(digits, "latin1"));
}

/** Positive, and in its shortest form. */
function serialNumber(): Buffer {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x7f) | 0x40;
  return bytes;
}

const spki = (key: KeyObject): Buffer => key.export({ type: "spki", format: "der" });
const keyId = (key: KeyObject): Buffer => createHash("sha256").update(spki(key)).digest().subarray(0, 20);

function addressBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split(".").map(Number));
  const [head = "", tail] = address.split("::");
  const groups = (text: string): number[] => (text === "" ? [] : text.split(":").map((group) => Number.parseInt(group, 16)));
  const [front, back] = [groups(head), groups(tail ?? "")];
  const all = tail === undefined ? front : [...front, ...Array<number>(8 - front.length - back.length).fill(0), ...back];
  return Buffer.from(all.flatMap((group) => [group >> 8, group & 0xff]));
}
