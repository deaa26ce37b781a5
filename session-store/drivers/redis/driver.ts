// The Redis driver: a session store that many processes share.
//
//   Log         one stream a session, explicit ids `<position>-0`: an entry that is there can't be added twice.
//   Steps       each change is one Lua step in one slot (session.lua and its siblings); its header says what it keeps and why a resend is safe.
//   Waiting     nothing blocks on Redis: bells tell (bells.ts), and whoever must not miss one polls as well.
//   Outages     every call ends (commands.ts); connections come back by themselves (connection.ts).
//   Durability  a call resolves when Redis has answered: with `appendfsync always` that is after the fsync of its append-only file.

import { Refusal } from "../../refusal.ts";
import type { Bell, Preview, SessionStore } from "../../store.ts";
import { Bells } from "./bells.ts";
import { Commands } from "./commands.ts";
import type { Log } from "./connection.ts";
import { Connection, saying } from "./connection.ts";
import { RedisDocuments } from "./documents.ts";
import { RedisDueSet } from "./due-set.ts";
import { claimInstallation, refuseUnfit, warnOfLoss } from "./fitness.ts";
import { channelOf, PING } from "./keys.ts";
import { listSessions } from "./listing.ts";
import { readScripts } from "./scripts.ts";
import { Sessions } from "./sessions.ts";

/** How long a start waits for Redis. */
const OPEN_MAX_MS = 10_000;
const PING_MAX_MS = 2_000;
const PING_KEPT_MS = 60_000;
/** Previews that are sent and not answered; more are dropped. */
const HINTS_MAX = 256;
/** Says nothing else than: look. */
const LOOK = "look";

export interface RedisStoreOptions {
  /** redis:// or rediss://; never logged, since it may hold a password. */
  readonly url: string;
  readonly leaseMs: number;
  readonly log: Log;
}

/** Opens the store. Refuses `store_unfit` for a server that can't keep a log safe, `store_busy` when there is none within 10 s. */
export async function openRedisStore({ url, leaseMs, log }: RedisStoreOptions): Promise<SessionStore> {
  const connection = new Connection({ url, name: "commands", log, greet: refuseUnfit });
  const commands = new Commands(connection, readScripts());
  const bells = new Bells(url, log);
  const close = async (): Promise<void> => {
    await Promise.all([connection.close(), bells.close()]);
  };
  try {
    if (!(await connection.ready(OPEN_MAX_MS))) {
      if (connection.cause instanceof Refusal) throw connection.cause;
      throw new Refusal("store_busy", "Redis can't be reached.", { detail: saying(connection.cause), cause: connection.cause });
    }
    await claimInstallation(commands);
    await warnOfLoss(commands, log);
  } catch (error) {
    await close();
    throw error;
  }
  return storeOf(commands, connection, bells, leaseMs, close);
}

function storeOf(commands: Commands, connection: Connection, bells: Bells, leaseMs: number, close: () => Promise<void>): SessionStore {
  const sessions = new Sessions(commands);
  const due = new RedisDueSet(commands, bells, leaseMs);
  const documents = new RedisDocuments(commands);
  let underWay = 0;
  const publish = (channel: string, text: string): void => {
    const { client } = connection;
    if (!client || underWay >= HINTS_MAX) return;
    underWay += 1;
    const answered = () => {
      underWay -= 1;
    };
    // A bell that is lost is not missed: what it hints at is in the store.
    client.sendCommand(["PUBLISH", channel, text]).then(answered, answered);
  };

  return {
    create: (session) => sessions.create(session),
    receive: (id, entries, options) => sessions.receive(id, entries, options),
    emitEvents: (lease, n, entries, options) => sessions.emitEvents(lease, n, entries, options?.isRecovery ?? false),
    finish: (lease, n, seen, entries, waitMs) => sessions.finish(lease, n, seen, entries, waitMs),
    release: (lease, n, entries, waitMs) => sessions.release(lease, n, entries, waitMs),
    getEvents: (id, slice = {}) => sessions.getEvents(id, slice),
    getSession: (id) => sessions.getSession(id),
    listSessions: (workspace, query) => listSessions(commands, workspace, query),
    recall: (id, retryDigest) => sessions.recall(id, retryDigest),
    forget: (id, retryDigest) => sessions.forget(id, retryDigest),
    remove: (id) => sessions.remove(id),

    take: (host, nonce) => due.take(host, nonce),
    renew: (lease) => due.renew(lease),
    wake: (id) => due.wake(id),
    onDue: (hear) => due.onDue(hear),

    put: (workspace, writes, options) => documents.put(workspace, writes, options),
    get: (workspace, kind, id) => documents.get(workspace, kind, id),
    list: (workspace, kind, query) => documents.list(workspace, kind, query),
    discard: (workspace, kind, id, options) => documents.discard(workspace, kind, id, options),

    listen: (id, hear) => bells.listen(channelOf(id), (text) => hear(bellOf(text))),
    ring: (topic) => publish(channelOf(topic), LOOK),
    preview: (id, preview) => publish(channelOf(id), JSON.stringify(preview)),

    async ping() {
      await commands.write(["SET", PING, "1", "PX", String(PING_KEPT_MS)], { isRead: true, maxMs: PING_MAX_MS });
    },
    close,
  };
}

/** A head is a number, a preview is JSON, anything else says: look. Only the steps, `preview` and `ring` ring these channels. */
function bellOf(text: string | null): Bell {
  if (text?.startsWith("{")) return { type: "preview", preview: JSON.parse(text) as Preview };
  const head = Number(text ?? Number.NaN);
  return Number.isInteger(head) ? { type: "head", head: head as Extract<Bell, { type: "head" }>["head"] } : { type: "look" };
}
