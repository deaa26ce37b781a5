// Two callers at one hand, at two gateways, in both eras, with equal ids and equal progress tokens: nothing of one ever reaches the other.

import { afterAll, beforeAll, expect } from "vitest";
import { RawServer, says } from "../support/mcp/raw.ts";
import { FIRST, openRelayDoors, type RelayDoors, SECOND } from "../support/mcp/relay-doors.ts";
import { handshake, type Reply, stateless } from "../support/mcp.ts";
import { proves } from "../support/proves.ts";

const CALLS = 250;
/** Of each caller in each era. */
const AT_ONCE = 25;
const IDS = [0, 1, "1"] as const;
const TEST_MS = 60_000;

let doors: RelayDoors;
let server: RawServer;
/** How often each of the server's own sessions was counted. */
const counts = new Map<string, number>();

beforeAll(async () => {
  doors = await openRelayDoors({ count: 2 });
  server = await RawServer.start({
    hasSessions: true,
    async call(name, { text }, asked) {
      const session = asked.session ?? "none";
      if (name === "count") {
        counts.set(session, (counts.get(session) ?? 0) + 1);
        return says(String(counts.get(session)));
      }
      const meta = asked.rpc.params?._meta;
      const progressToken = typeof meta === "object" && meta !== null && "progressToken" in meta ? meta.progressToken : undefined;
      const tell = asked.stream();
      tell({ method: "notifications/progress", params: { progressToken, progress: 1, message: text } });
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 10));
      return says(`${session} ${String(text)}`);
    },
  });
  await doors.register("raw", server.url);
});
afterAll(async () => {
  await doors.close();
  await server.close();
});

const textOf = ({ messages }: Reply) => String(messages.at(-1)?.result?.content?.[0]?.text);

/** A caller's calls in one era, many at once; gives the server's sessions that answered, and what its counter said. */
async function run(headers: { readonly authorization: string }, who: string, era: "handshake" | "stateless") {
  const opened = era === "handshake" ? await handshake(doors.url("raw", 0), headers, { other: doors.url("raw", 1) }) : null;
  const sessions = new Set<string>();
  const counted: number[] = [];
  const one = async (n: number): Promise<void> => {
    const id = IDS[n % IDS.length] ?? 0;
    const text = `${who} ${era} ${n}`;
    const params = n % 5 === 0 ? { name: "count", arguments: {} } : { name: "echo", arguments: { text }, _meta: { progressToken: 1 } };
    const reply = opened
      ? await opened.call(id, "tools/call", params)
      : await stateless(doors.url("raw", n % 2), headers, { id, method: "tools/call", params });
    expect(reply.messages.at(-1)?.id).toBe(id);
    if (n % 5 === 0) {
      counted.push(Number(textOf(reply)));
      return;
    }
    expect(textOf(reply).endsWith(` ${text}`)).toBe(true);
    expect(reply.messages.slice(0, -1)).toMatchObject([{ method: "notifications/progress", params: { progressToken: 1, message: text } }]);
    sessions.add(textOf(reply).split(" ")[0] ?? "");
  };
  let next = 0;
  const some = async () => {
    for (let n = next++; n < CALLS; n = next++) await one(n);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, some));
  return { sessions: [...sessions], counted: counted.sort((one, other) => one - other) };
}

proves(
  "mcp:apart",
  "a thousand overlapping calls of two callers at a hand's door, with equal ids and tokens, never meet",
  async () => {
    const ran = await Promise.all((["handshake", "stateless"] as const).flatMap((era) => [run(FIRST, "first", era), run(SECOND, "second", era)]));
    const whole = Array.from({ length: CALLS / 5 }, (_, n) => n + 1);
    for (const { sessions, counted } of ran) {
      expect(sessions).toHaveLength(1);
      expect(counted).toEqual(whole);
    }
    expect(new Set(ran.flatMap(({ sessions }) => sessions)).size).toBe(4);
  },
  TEST_MS,
);
