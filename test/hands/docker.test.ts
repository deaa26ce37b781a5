// The parts of the Docker driver that need no engine: how its streams are taken apart, and what of them is believed.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Block, checked } from "../../hands/docker/blocks.ts";
import { Demux } from "../../hands/docker/demux.ts";
import { parseAddress } from "../../hands/docker/engine.ts";
import { FrameReader, frame } from "../../hands/docker/frames.ts";

/** A buffer in pieces, cut at these places. */
function cutAt(bytes: Buffer, places: readonly number[]): Buffer[] {
  const ends = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((one, other) => one - other);
  return [0, ...ends].map((start, index) => bytes.subarray(start, ends[index] ?? bytes.length));
}

const places = fc.array(fc.nat(), { maxLength: 40 });

describe("the engine's stream", () => {
  const piece = fc.record({ stream: fc.constantFrom(1, 2), bytes: fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)) });

  it("gives the same bytes however it is cut", () => {
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 20 }), places, (pieces, cuts) => {
        const wire = Buffer.concat(
          pieces.flatMap(({ stream, bytes }) => {
            const header = Buffer.alloc(8);
            header.writeUInt8(stream, 0);
            header.writeUInt32BE(bytes.length, 4);
            return [header, bytes];
          }),
        );
        const heard = { 1: [] as Buffer[], 2: [] as Buffer[] };
        const demux = new Demux(
          (chunk) => heard[1].push(chunk),
          (chunk) => heard[2].push(chunk),
        );
        for (const chunk of cutAt(wire, cuts)) demux.push(chunk);
        for (const stream of [1, 2] as const)
          expect(Buffer.concat(heard[stream])).toEqual(Buffer.concat(pieces.filter((each) => each.stream === stream).map(({ bytes }) => bytes)));
      }),
    );
  });

  it("refuses what has no header, and keeps it as a diagnosis", () => {
    const diagnosis: string[] = [];
    const demux = new Demux(
      () => {},
      (chunk) => diagnosis.push(chunk.toString()),
    );
    expect(() => demux.push(Buffer.from("OCI runtime exec failed: no such file"))).toThrow(RangeError);
    expect(diagnosis.join("")).toBe("OCI runtime exec failed: no such file");
  });
});

describe("frames", () => {
  it("come whole and in order however they are cut", () => {
    fc.assert(
      fc.property(fc.array(fc.jsonValue(), { maxLength: 20 }), places, (values, cuts) => {
        const heard: unknown[] = [];
        const reader = new FrameReader((value) => heard.push(value));
        for (const chunk of cutAt(Buffer.concat(values.map(frame)), cuts)) reader.push(chunk);
        expect(JSON.stringify(heard)).toBe(JSON.stringify(values));
      }),
    );
  });

  it("over the limit, or no JSON, break the line", () => {
    const reader = () => new FrameReader(() => {});
    expect(() => reader().push(Buffer.from([0xff, 0xff, 0xff, 0xff]))).toThrow(RangeError);
    expect(() => reader().push(Buffer.from([0, 0, 0, 1, 0x7b]))).toThrow(SyntaxError);
  });
});

describe("what a container says a result is", () => {
  const image = (data: string) => Block.parse({ type: "image", source: { type: "base64", media_type: "image/png", data } });

  it("becomes a note where the model's API would not take it", () => {
    expect(checked(image("AAAA"))).toEqual({ type: "text", text: "[a picture that can't be shown]" });
    const document = { type: "document", source: { type: "base64", media_type: "application/pdf", data: "AAAA" } } as const;
    expect(checked(Block.parse(document))).toEqual({ type: "text", text: "[a document that can't be shown]" });
    expect(checked({ type: "text", text: "" })).toEqual({ type: "text", text: "(no output)" });
    expect(checked({ type: "text", text: "a\ud83d" })).toEqual({ type: "text", text: "a\ufffd" });
  });

  it("is cut where it is longer than any tool's answer", () => {
    const block = checked({ type: "text", text: "x".repeat(1_000_000) });
    expect(block.type === "text" && block.text.length).toBe(200_001);
  });
});

describe("an engine's address", () => {
  it.each([
    ["unix:///var/run/docker.sock", { socketPath: "/var/run/docker.sock" }],
    ["tcp://127.0.0.1:2375", { host: "127.0.0.1", port: 2375 }],
    ["unix://", null],
    ["ssh://elsewhere", null],
    ["tcp://127.0.0.1", null],
    ["/var/run/docker.sock", null],
  ])("%s", (text, address) => {
    expect(parseAddress(text)).toEqual(address);
  });
});
