// A call of an MCP server keeps what every call of a hand keeps (M1-M5): run once, by the newest fence, and unknown after the host's death.

import { afterEach, beforeEach, expect, test } from "vitest";
import type { HandsClient } from "../../hands/client.ts";
import type { HandRef, Holder } from "../../hands/hand.ts";
import { type Fence, mintSession, type SessionId } from "../../session-store/ids.ts";
import { textOf } from "../support/mcp/hand.ts";
import { type Asked, RawServer, says } from "../support/mcp/raw.ts";
import { makePlace, type Place, until } from "./hand-host.ts";

const never = new AbortController().signal;

let server: RawServer;
let place: Place;
let hands: HandsClient;
let session: SessionId;
const held: Asked[] = [];
beforeEach(async () => {
  held.length = 0;
  session = mintSession();
  server = await RawServer.start({
    hasSessions: true,
    call(name, _input, asked) {
      if (name !== "slow") return says(name);
      held.push(asked);
      return undefined;
    },
  });
  place = makePlace({ MANYHANDS_MCP_INTERNAL_HOSTS: "*" });
  await place.start();
  hands = place.client();
});
afterEach(async () => {
  await place.clean();
  await server.close();
});

const holder = (fence: number): Holder => ({ session, fence: fence as Fence });
const wanted = (name = "docs") => ({ server: { name, transport: { type: "url" as const, url: server.url } } });
const call = (ref: HandRef, id: string, name: string, fence = 1) => hands.execute(holder(fence), ref, { id, name, input: {} }, true, never);

test("a session has one hand a server, beside its sandbox, and all of them go with it", async () => {
  const sandbox = await hands.provision(holder(1), { environment_id: "env_1" }, never);
  const docs = await hands.provision(holder(1), wanted(), never);
  const other = await hands.provision(holder(1), wanted("other"), never);
  expect(await hands.provision(holder(2), wanted(), never)).toEqual(docs);
  expect(new Set([sandbox.hand, docs.hand, other.hand]).size).toBe(3);
  expect(textOf(await call(docs, "a", "echo", 2))).toBe("echo");
  await hands.release(session, docs.host, never);
  expect((await hands.instances(docs.host, never)).filter((one) => one.session === session)).toEqual([]);
  await expect(call(docs, "b", "echo", 2)).rejects.toMatchObject({ code: "hand_lost" });
});

test("two that ask for the same call have one run and its result, and an older fence is refused", async () => {
  const ref = await hands.provision(holder(1), wanted(), never);
  const one = call(ref, "a", "slow");
  await until(() => held.length === 1);
  const other = call(ref, "a", "slow", 2);
  held[0]?.result(says("once"));
  expect((await Promise.all([one, other])).map(textOf)).toEqual(["once", "once"]);
  expect(textOf(await call(ref, "a", "slow", 2))).toBe("once");
  await expect(call(ref, "b", "echo", 1)).rejects.toMatchObject({ code: "fenced" });
  expect(server.count("tools/call")).toBe(1);
});

test("calls of one server start one after the other", async () => {
  const ref = await hands.provision(holder(1), wanted(), never);
  const slow = call(ref, "a", "slow");
  await until(() => held.length === 1);
  const next = call(ref, "b", "echo");
  held[0]?.result(says("first"));
  expect((await Promise.all([slow, next])).map(textOf)).toEqual(["first", "echo"]);
  expect(server.seen.filter(({ method }) => method === "tools/call").map(({ params }) => params?.name)).toEqual(["slow", "echo"]);
});

test("what ran when the host was killed is unknown and not run again, whatever the caller would allow; the next call works", async () => {
  const ref = await hands.provision(holder(1), wanted(), never);
  const lost = call(ref, "a", "slow");
  await until(() => held.length === 1);
  await place.last().end("SIGKILL");
  await place.start();
  expect(textOf(await lost)).toContain("the hand host was restarted while it ran");
  expect(textOf(await call(ref, "b", "echo", 2))).toBe("echo");
  expect(server.count("tools/call")).toBe(2);
});
