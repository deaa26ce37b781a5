// Is this server fit to hold logs? Asked at every new connection.
//
//   U1  Refused (`store_unfit`): older than 7.0, a cluster, a replica, a policy that evicts.
//   U2  An installation's number of partitions is in the store, and another number refuses to start: sessions would not be found again.
//   U3  Less than `appendfsync always` can lose what was acknowledged: it is said, not refused.

import { ErrorReply } from "redis";
import { Refusal } from "../../refusal.ts";
import type { Commands } from "./commands.ts";
import type { Client, Log } from "./connection.ts";
import { INSTALLATION, PARTITIONS } from "./keys.ts";
import { list, text, whole } from "./reply.ts";

const VERSION_MIN = 7;

/** U1 */
export async function refuseUnfit(client: Client): Promise<void> {
  const info = infoOf(await client.sendCommand<unknown>(["INFO"]));
  const version = info.get("redis_version") ?? "";
  if (!(Number.parseInt(version, 10) >= VERSION_MIN)) throw unfit(`Redis ${version || "of an unknown version"} is too old: 7.0 or newer is needed.`);
  if (info.get("cluster_enabled") === "1") throw unfit("Redis runs in cluster mode, which is not supported.");
  if (info.get("role") === "slave") throw unfit("This Redis is a replica: the address of its primary is needed.");
  const policy = info.get("maxmemory_policy") ?? "noeviction";
  if (policy !== "noeviction") throw unfit(`maxmemory-policy is ${policy}: Redis may evict parts of a log. Set it to noeviction.`);
  if (info.get("loading") === "1") throw new Error("Redis is loading its data");
}

/** U3 */
export async function warnOfLoss(commands: Commands, log: Log): Promise<void> {
  let settings: readonly unknown[];
  try {
    settings = [...list((await commands.read([["CONFIG", "GET", "append*"]]))[0])];
  } catch (error) {
    if (!(error instanceof ErrorReply)) throw error;
    log.warn({}, "durability.unknown");
    return;
  }
  const setting = (name: string) => settings[settings.indexOf(name) + 1];
  const appendonly = setting("appendonly");
  const appendfsync = setting("appendfsync");
  if (appendonly !== "yes" || appendfsync !== "always") log.warn({ appendonly, appendfsync, wants: "appendfsync always" }, "durability.weak");
}

/** U2 */
export async function claimInstallation(commands: Commands): Promise<void> {
  await commands.write(["HSETNX", INSTALLATION, "partitions", String(PARTITIONS)]);
  const [kept] = await commands.read([["HGET", INSTALLATION, "partitions"]]);
  if (whole(kept) !== PARTITIONS) throw unfit(`This store was made with ${text(kept)} partitions, and this version has ${PARTITIONS}.`);
}

function infoOf(reply: unknown): ReadonlyMap<string, string> {
  const lines = text(reply).split("\r\n");
  return new Map(
    lines.filter((line) => line.includes(":")).map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)] as const),
  );
}

const unfit = (says: string): Refusal => new Refusal("store_unfit", says);
