// What is kept of sessions: their logs as the API shows them, and the store under them.

import { cp, mkdtemp, readdir } from "node:fs/promises";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import Database from "libsql";
import { createClient, RESP_TYPES } from "redis";
import { until } from "../../support/until.ts";
import type { Piece } from "../search.ts";
import { filesIn } from "./files.ts";
import { ofBytes, ofMarked, ofText, type Scene, type Surface } from "./surface.ts";

const TURN_MS = 60_000;

const clientOf = ({ house }: Scene): Anthropic => new Anthropic({ baseURL: house.url, apiKey: house.apiKey });

async function* eventsOf(
  scene: Scene,
  place: string,
  pick: (event: Anthropic.Beta.Sessions.BetaManagedAgentsSessionEvent) => unknown,
): AsyncGenerator<Piece> {
  const { sessions } = clientOf(scene).beta;
  for (const id of scene.played.sessions)
    for await (const event of sessions.events.list(id, { limit: 1_000 })) {
      const picked = pick(event);
      if (picked !== undefined) yield { place, bytes: Buffer.from(JSON.stringify(picked)) };
      // As a person reads it, too: the texts of it without their escapes.
      if (picked !== undefined) yield { place, bytes: Buffer.from(textsOf(picked).join("\n")) };
    }
}

function textsOf(value: unknown): string[] {
  if (typeof value === "string") return [value];
  return typeof value === "object" && value !== null ? Object.values(value).flatMap(textsOf) : [];
}

async function say(scene: Scene, text: string): Promise<void> {
  const { sessions } = clientOf(scene).beta;
  const id = scene.played.main;
  await sessions.events.send(id, { events: [{ type: "user.message", content: [{ type: "text", text }] }] });
  await until(async () => (await sessions.retrieve(id)).status === "idle", { timeoutMs: TURN_MS, pollMs: 100, what: "an idle session" });
}
const bash = (command: string): string => `call bash: ${JSON.stringify({ command })}\nsay: done`;

export const toolInputs: Surface = ofText(
  "tool inputs",
  (scene) => eventsOf(scene, "an input", (event) => ("input" in event ? event.input : undefined)),
  (scene, text) => say(scene, bash(`true '${text}'`)),
);

/** Of tools of hands and of servers, errors as well. */
export const toolResults: Surface = ofText(
  "tool results",
  (scene) => eventsOf(scene, "a result", (event) => (event.type.endsWith("tool_result") && "content" in event ? event.content : undefined)),
  (scene, text) => say(scene, bash(`printf '%s' '${text}'`)),
);

export const sessionLog: Surface = ofText(
  "session log",
  (scene) => eventsOf(scene, "an event", (event) => event),
  (scene, text) => say(scene, `say: noted\n${text}`),
);

/** Files as they are, and every value of every table: a long one lies in pieces in the file. */
export const embedded: Surface = ofText(
  "files of the store",
  async function* ({ house }) {
    const folder = join(house.data, "session-store");
    yield* filesIn({ name: "store", folder });
    // A copy: whoever owns the store lets nobody else in.
    const copy = await mkdtemp(join(house.folder, "store-"));
    await cp(folder, copy, { recursive: true });
    for (const name of await readdir(copy)) {
      if (!name.endsWith(".db")) continue;
      const database = new Database(join(copy, name));
      const tables = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table'").all() as { name: string }[];
      for (const table of tables)
        for (const row of database.prepare(`SELECT * FROM "${table.name}"`).all() as Record<string, unknown>[])
          for (const [column, value] of Object.entries(row)) yield { place: `${table.name}.${column}`, bytes: bytesOf(value) };
      database.close();
    }
  },
  async (scene, text) => void (await clientOf(scene).beta.agents.create({ name: "Planted", model: "scripted-model", system: text })),
);

const bytesOf = (value: unknown): Buffer => (Buffer.isBuffer(value) || value instanceof Uint8Array ? Buffer.from(value) : Buffer.from(String(value)));

export const appendOnlyFiles: Surface = ofMarked(
  "Redis' append-only files",
  ({ house }) => filesIn({ name: "redis", folder: join(house.folder, "redis") }),
  (scene, planted) =>
    withRedis(scene, async (send) => {
      for (const [at, { bytes }] of planted.entries()) {
        await send("SET", `gone:${at}`, bytes);
        await send("DEL", `gone:${at}`);
      }
    }),
);

export const keyspace: Surface = ofBytes(
  "Redis' keyspace",
  async function* (scene) {
    const pieces: Piece[] = [];
    await withRedis(scene, async (send) => {
      for (const key of flat(await send("KEYS", "*"))) {
        const type = String(flat(await send("TYPE", key))[0]);
        const ask = READERS[type];
        if (ask === undefined) throw new Error(`Redis holds a ${type}, which is not looked at`);
        pieces.push({ place: `a key of type ${type}`, bytes: key });
        for (const value of flat(await send(...ask(key)))) pieces.push({ place: `a value of type ${type}`, bytes: value });
      }
      for (const value of flat(await send("FUNCTION", "DUMP"))) pieces.push({ place: "functions", bytes: value });
      pieces.push({ place: "clients", bytes: Buffer.concat(flat(await send("CLIENT", "LIST"))) });
    });
    yield* pieces;
  },
  (scene, planted) =>
    withRedis(scene, async (send) => {
      for (const [at, { bytes }] of planted.entries()) await send("SET", `planted:${at}`, bytes);
    }),
);

const READERS: Readonly<Record<string, (key: Buffer) => (string | Buffer)[]>> = {
  string: (key) => ["GET", key],
  hash: (key) => ["HGETALL", key],
  list: (key) => ["LRANGE", key, "0", "-1"],
  set: (key) => ["SMEMBERS", key],
  zset: (key) => ["ZRANGE", key, "0", "-1", "WITHSCORES"],
  stream: (key) => ["XRANGE", key, "-", "+"],
};

/** What the programs say to Redis; bells are nowhere else. */
export const redisTraffic: Surface = ofMarked(
  "what is said to Redis",
  function* ({ taps }) {
    for (const tap of taps.filter(({ name }) => name === "gateway or worker and Redis")) yield* tap.bytes();
  },
  (scene, planted) =>
    withRedis(
      scene,
      async (send) => {
        for (const { bytes } of planted) await send("PUBLISH", "planted", bytes);
      },
      scene.taps.find(({ name }) => name === "gateway or worker and Redis")?.port,
    ),
);

type Send = (...words: (string | Buffer)[]) => Promise<unknown>;

async function withRedis({ house }: Scene, work: (send: Send) => Promise<void>, port = house.redisPort): Promise<void> {
  const client = createClient({ url: `redis://127.0.0.1:${port}`, RESP: 2 });
  await client.connect();
  try {
    const typeMapping = { [RESP_TYPES.BLOB_STRING]: Buffer, [RESP_TYPES.SIMPLE_STRING]: Buffer };
    await work((...words) => client.sendCommand(words, { typeMapping }));
  } finally {
    client.destroy();
  }
}

/** Every string of an answer, however deep. */
const flat = (answer: unknown): Buffer[] => (Buffer.isBuffer(answer) ? [answer] : Array.isArray(answer) ? answer.flatMap(flat) : []);
