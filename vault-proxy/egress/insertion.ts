// What is done to a request that goes to a credential's own host, and to the answer: placeholders become credentials, and what comes back is masked.
//
//   I1  A use is written to the audit before the request, or that piece of a streamed one, leaves.
//   I2  A body with a stated length of at most WHOLE_BYTES_MAX is read whole, so that its new length can be stated. A longer one passes unread, and one
//       without a length is looked through as it streams. What is compressed passes unread.
//   I3  Answers are asked for uncompressed; one that comes compressed all the same is unpacked, masked and given on plain.
//   I4  A short value (under eight characters) is not masked: it would be found everywhere.

import type { IncomingMessage } from "node:http";
import { type Duplex, type Readable, Transform } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import type { Audit } from "../audit.ts";
import { AuditTrouble } from "../audit.ts";
import type { Grant } from "../grant.ts";
import { Scrubber } from "../scrub.ts";
import type { Insertion } from "./exchange.ts";
import type { Pair } from "./headers.ts";
import type { Place } from "./place.ts";
import { Denied } from "./says.ts";
import type { Secret } from "./secrets.ts";
import { BodySwap, swapHeaders, type Used } from "./swap.ts";

const WHOLE_BYTES_MAX = 1024 * 1024;
/** They tell of the bytes that were sent, and masked ones are others. */
const OF_OTHER_BYTES = new Set(["content-length", "content-encoding", "content-md5", "digest", "content-digest", "repr-digest"]);

export interface InsertionOptions {
  readonly grant: Grant;
  readonly place: Place;
  readonly scheme: "http" | "https";
  readonly secrets: readonly Secret[];
  readonly audit: Audit;
}

export function insertionOf(options: InsertionOptions): Insertion {
  const { secrets, place } = options;
  const audited: Used = new Set();
  const audit = async (used: Used): Promise<void> => {
    const fresh = [...used].filter((each) => !audited.has(each));
    await Promise.all(fresh.map((secret) => written(options, secret)));
    for (const each of fresh) audited.add(each);
  };
  return {
    async request(given, body) {
      const used: Used = new Set();
      const headers = [
        ...swapHeaders(given, secrets, used).filter(([name]) => !isNamed(name, "accept-encoding")),
        ["Accept-Encoding", "identity"] as const,
      ];
      const swap = new BodySwap(secrets, firstOf(given, "content-type"), used);
      const isPacked = !["", "identity"].includes(firstOf(given, "content-encoding").toLowerCase());
      const stated = firstOf(given, "content-length");
      if (body === null || isPacked || swap.isIdle || Number(stated) > WHOLE_BYTES_MAX) {
        await audit(used);
        return { headers, body };
      }
      if (stated === "") {
        await audit(used);
        return { headers, body: body.pipe(swapping(body, swap, () => audit(used))) };
      }
      const whole = await wholeOf(body, Number(stated), place);
      const swapped = Buffer.concat([swap.push(whole), swap.end()]);
      await audit(used);
      return {
        headers: [...headers.filter(([name]) => !isNamed(name, "content-length")), ["Content-Length", String(swapped.length)]],
        body: swapped,
      };
    },
    answer(given, isBare) {
      const scrubber = new Scrubber(...secrets.map(({ value }) => value));
      const unpack = isBare ? null : unpacker(firstOf(given, "content-encoding").toLowerCase(), place);
      const masked = given.map(([name, value]): Pair => [name, scrubber.header(value)]);
      const headers = unpack === null ? masked : masked.filter(([name]) => !OF_OTHER_BYTES.has(name.toLowerCase()));
      return { headers, through: [...(unpack === null ? [] : [unpack]), masking(scrubber)] };
    },
  };
}

/** I1 */
async function written({ grant, place, scheme, audit }: InsertionOptions, { vault, credential }: Secret): Promise<void> {
  const { sessionId: session, fence, workspace } = grant;
  try {
    await audit.write({
      use: "egress",
      session,
      fence,
      ...(workspace === null ? {} : { workspace }),
      vault,
      credential,
      origin: `${scheme}://${place.text}`,
    });
  } catch (error) {
    throw error instanceof AuditTrouble ? new Denied("no_audit", place) : error;
  }
}

function swapping(source: Readable, swap: BodySwap, audit: () => Promise<void>): Transform {
  const through = new Transform({
    transform(piece: Buffer, _encoding, next) {
      const swapped = swap.push(piece);
      audit().then(() => next(null, swapped), next);
    },
    flush(next) {
      next(null, swap.end());
    },
  });
  source.once("error", (error) => through.destroy(error));
  source.once("close", () => {
    if (!source.readableEnded) through.destroy(new Denied("ended"));
  });
  return through;
}

function masking(scrubber: Scrubber): Transform {
  const masked = scrubber.body();
  return new Transform({
    transform(piece: Buffer, _encoding, next) {
      next(null, masked.push(piece));
    },
    flush(next) {
      next(null, masked.end());
    },
  });
}

/** I3. Null: it is plain. */
function unpacker(encoding: string, place: Place): Duplex | null {
  switch (encoding) {
    case "":
    case "identity":
      return null;
    case "gzip":
    case "x-gzip":
      return createGunzip();
    case "deflate":
      return createInflate();
    case "br":
      return createBrotliDecompress();
    default:
      throw new Denied("encoded", place);
  }
}

async function wholeOf(body: IncomingMessage, stated: number, place: Place): Promise<Buffer> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of body) pieces.push(piece);
  } catch {
    throw new Denied("ended", place);
  }
  const whole = Buffer.concat(pieces);
  if (whole.length !== stated) throw new Denied("ended", place);
  return whole;
}

const isNamed = (given: string, name: string): boolean => given.toLowerCase() === name;
const firstOf = (headers: readonly Pair[], name: string): string => headers.find(([each]) => isNamed(each, name))?.[1] ?? "";
