// No picture ends a session: each goes to the model as a picture that its API takes, its type read from the bytes, or as a short note. Wherever it comes
// from (a file, a custom tool, a client's message), it never travels as base64 text, and the next messages work.
//
// anthropics/claude-code#2939, trycua/cua#884, kirodotdev/Kiro#6292

import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { JPEG, png } from "../../support/pictures.ts";
import { proves } from "../../support/proves.ts";
import { type CaseSession, LOOK_UP, type ModelBlock, Stage, TOOLSET } from "./stage.ts";

const MB = 1024 * 1024;
/** As the model's API counts: of the whole request. */
const REQUEST_BYTES_MAX = 32 * MB;
const BASE64_RUN = /[A-Za-z0-9+/]{200}/;

/** Name → bytes, and what they come to. */
const FILES: Readonly<Record<string, readonly [bytes: Buffer, comesTo: string]>> = {
  "heavy.png": [png(2_000, 2_000, true), "text"],
  "wide.png": [png(9_000, 10), "text"],
  "photo.png": [JPEG, "image/jpeg"],
  "cut.png": [png(400, 300, true).subarray(0, 200_000), "text"],
  "flipped.png": [flipped(png(40, 30, true)), "text"],
  "cut.jpg": [JPEG.subarray(0, -4), "text"],
  "words.png": [Buffer.from("This is no picture."), "text"],
  "good.png": [png(40, 30), "image/png"],
};

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

function flipped(bytes: Buffer): Buffer {
  const broken = Buffer.from(bytes);
  broken.writeUInt8(broken.readUInt8(60) ^ 0xff, 60);
  return broken;
}

const Image = z.looseObject({ type: z.literal("image"), source: z.looseObject({ media_type: z.string() }) });
/** A picture by its media type, anything else by its block type. */
const kindOf = (block: ModelBlock): string => Image.safeParse(block).data?.source.media_type ?? block.type;
const partsIn = (block: ModelBlock): readonly ModelBlock[] => z.array(z.looseObject({ type: z.string() })).parse(block.content);

/** What the calls of the session came to, as the model saw it last. */
const shown = (session: CaseSession): readonly ModelBlock[] =>
  session
    .lastRequest()
    .messages.flatMap(({ content }) => content.filter(({ type }) => type === "tool_result"))
    .flatMap(partsIn);

/** The next messages work, the model refused nothing, and no picture was told as text. */
async function expectAlive(session: CaseSession): Promise<void> {
  for (const words of ["one", "two"]) expect(await session.turn(`say: ${words}`)).toBe(words);
  const requests = session.requests();
  expect(requests.filter(({ rejected }) => rejected !== null)).toEqual([]);
  const texts = requests
    .flatMap(({ body }) => body.messages)
    .flatMap(({ content }) => content.flatMap((block) => (block.type === "tool_result" ? partsIn(block) : [block])));
  expect(texts.filter(({ type, text }) => type === "text" && BASE64_RUN.test(String(text)))).toEqual([]);
}

/** Puts files where the session's hand keeps its own. */
async function put(session: CaseSession, files: Readonly<Record<string, Buffer>>): Promise<void> {
  await session.turn(`call bash: {"command":"touch ${session.nonce}"}\n---\nsay: made`);
  const found = (await readdir(stage.installation.dataDir, { recursive: true, withFileTypes: true })).find(({ name }) => name === session.nonce);
  if (!found) throw new Error("the session's hand has no folder");
  for (const [name, bytes] of Object.entries(files)) await writeFile(join(found.parentPath, name), bytes);
}

const readAll = (names: readonly string[]) => names.map((name) => `call read: {"file_path":"${name}"}`).join("\n");

describe("pictures in files", () => {
  proves("picture:harmless", "are shown, or said to be no use", async () => {
    const session = await stage.session([TOOLSET]);
    const entries = Object.entries(FILES);
    await put(session, Object.fromEntries(entries.map(([name, [bytes]]) => [name, bytes])));
    await session.turn(`${readAll(Object.keys(FILES))}\n---\nsay: seen`);
    expect(shown(session).slice(1).map(kindOf)).toEqual(entries.map(([, [, comesTo]]) => comesTo));
    await expectAlive(session);
  });

  test("are held to the stricter limit when there are many", async () => {
    const session = await stage.session([TOOLSET]);
    await put(session, { "large.png": png(2_560, 1_440), "screen.png": png(1_920, 1_080) });
    await session.turn(`${readAll(["large.png"])}\n---\nsay: seen`);
    expect(shown(session).slice(1).map(kindOf)).toEqual(["image/png"]);
    const screens = Array.from({ length: 5 }, () => readAll(Array.from({ length: 5 }, () => "screen.png")));
    await session.turn(`${screens.join("\n---\n")}\n---\nsay: seen`);
    expect(shown(session).slice(1).map(kindOf)).toEqual(["text", ...Array.from({ length: 25 }, () => "image/png")]);
    await expectAlive(session);
  });
});

type Picture = Anthropic.Beta.Sessions.BetaManagedAgentsImageBlock;
const picture = (data: string, media_type = "image/png"): Picture => ({ type: "image", source: { type: "base64", media_type, data } });

const GIVEN: readonly (readonly [name: string, block: Picture, comesTo: string])[] = [
  ...Object.entries(FILES)
    .filter(([name]) => name !== "heavy.png")
    .map(([name, [bytes, comesTo]]) => [name, picture(bytes.toString("base64")), comesTo] as const),
  ["characters that are no base64", picture("@@@@"), "text"],
  ["base64 that is cut off", picture(png(4, 3).toString("base64").slice(0, -5)), "text"],
  ["a data address", picture(`data:image/png;base64,${png(4, 3).toString("base64")}`), "text"],
  ["a type that is none", picture(png(4, 3).toString("base64"), "application/x-picture"), "image/png"],
];

describe.concurrent("pictures that a client sends", () => {
  test.each(GIVEN)("in a message: %s", async (_name, block, comesTo) => {
    const session = await stage.session();
    await session.send({ type: "user.message", content: [block, { type: "text", text: `say: seen\n(${session.nonce})` }] });
    await session.rested();
    expect(await session.lastWords()).toBe("seen");
    expect(session.lastRequest().messages[0]?.content.map(kindOf)).toEqual([comesTo, "text"]);
    await expectAlive(session);
  });

  test.each([...GIVEN.map(([name, block, comesTo]) => [name, [block], comesTo] as const), ["nothing at all", [], "text"] as const])(
    "in a custom tool's error: %s",
    async (_name, content) => {
      const session = await stage.session([LOOK_UP]);
      await session.say("call look_up: {}\n---\nsay: seen");
      const { id } = await session.has("agent.custom_tool_use");
      await session.send({ type: "user.custom_tool_result", custom_tool_use_id: id, content: [...content], is_error: true });
      await session.rested();
      expect(await session.lastWords()).toBe("seen");
      await expectAlive(session);
    },
  );

  test("in a custom tool's result", async () => {
    const session = await stage.session([LOOK_UP]);
    await session.say("call look_up: {}\n---\nsay: seen");
    const { id } = await session.has("agent.custom_tool_use");
    await session.send({ type: "user.custom_tool_result", custom_tool_use_id: id, content: GIVEN.map(([, block]) => block) });
    await session.rested();
    expect(shown(session).map(kindOf)).toEqual(GIVEN.map(([, , comesTo]) => comesTo));
    await expectAlive(session);
  });
});

test("pictures that together are more than a request may hold are left out, the oldest first", async () => {
  const session = await stage.session();
  const tooLarge = picture(png(1_200, 1_200, true).toString("base64"));
  const large = picture(png(1_100, 1_100, true).toString("base64"));
  for (const pictures of [
    [tooLarge, large, large, large, large],
    [large, large, large],
  ]) {
    await session.send({ type: "user.message", content: [...pictures, { type: "text", text: `say: seen\n(${session.nonce})` }] });
    await session.rested();
    expect(await session.lastWords(), JSON.stringify(await session.events("session.error"))).toBe("seen");
  }
  const kinds = session.lastRequest().messages.flatMap(({ role, content }) => (role === "user" ? content.slice(0, -1).map(kindOf) : []));
  expect(kinds).toEqual(["text", "text", "text", "text", "image/png", "image/png", "image/png", "image/png"]);
  expect(JSON.stringify(session.lastRequest()).length).toBeLessThan(REQUEST_BYTES_MAX);
  expect(session.requests().filter(({ rejected }) => rejected !== null)).toEqual([]);
});
