import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import type { Transport as OldPeer } from "@modelcontextprotocol/sdk/shared/transport.js";
import { pino } from "pino";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { type HandsClient, makeHands } from "../../hands/client.ts";
import type { Holder, Outcome } from "../../hands/hand.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";
import { HAND_KEY, type HostProcess, makePlace, type Place, until } from "./hand-host.ts";

const never = new AbortController().signal;
const holderOf = (fence: number, session = mintSession()): Holder => ({ session, fence: fence as Fence });
const text = (outcome: Outcome): string =>
  outcome.type === "done"
    ? outcome.content.map((block) => (block.type === "text" ? block.text : `<${block.type}>`)).join("")
    : `${outcome.type}: ${outcome.reason}`;
const done = (said: string): Outcome => ({ type: "done", content: [{ type: "text", text: said }], isError: false });

/** A session's hand, and short words for what is done with it. */
async function newHand(place: Place, hands: HandsClient) {
  const first = holderOf(1);
  const ref = await hands.provision(first, { environment_id: "env_1" }, never);
  const workspace = join(place.dataDir, "hands/sandboxes", ref.hand, "workspace");
  const bash = (holder: Holder, id: string, command: string) => hands.execute(holder, ref, { id, name: "bash", input: { command } }, false, never);
  const later = (fence: number): Holder => ({ session: first.session, fence: fence as Fence });
  const has = (file: string) => existsSync(join(workspace, file));
  const lines = (file: string) => readFileSync(join(workspace, file), "utf8").split("\n").length - 1;
  return { ref, first, later, workspace, bash, has, lines };
}

describe("one hand host", () => {
  let place: Place;
  let host: HostProcess;
  let hands: HandsClient;

  beforeAll(async () => {
    place = makePlace();
    host = await place.start();
    hands = place.client();
  });
  afterAll(() => place.clean());

  it("provisions one hand a session, however often it is asked", async () => {
    const holder = holderOf(1);
    const refs = await Promise.all([1, 2, 3].map(() => hands.provision(holder, { environment_id: "env_1" }, never)));
    expect(new Set(refs.map((ref) => ref.hand)).size).toBe(1);
    expect(refs[0]?.host).toBe(host.id);
    expect(await hands.instances(host.id, never)).toContainEqual({ hand: refs[0]?.hand, session: holder.session });
  });

  it("runs a call once when it is asked for by two at a time, and answers it later too", async () => {
    const { first, bash, lines } = await newHand(place, hands);
    const both = await Promise.all([
      bash(first, "a", "echo x >> count; sleep 0.3; echo ran"),
      bash(first, "a", "echo x >> count; sleep 0.3; echo ran"),
    ]);
    expect(both).toEqual([done("ran"), done("ran")]);
    expect(await bash(first, "a", "echo x >> count; echo again")).toEqual(done("ran"));
    expect(lines("count")).toBe(1);
  });

  it("goes on with a call whose asker went away, and gives its result to the next one", async () => {
    const { first, later, ref, has, lines } = await newHand(place, hands);
    const use = { id: "a", name: "bash", input: { command: "touch started; sleep 0.5; echo x >> count; echo ran" } };
    const leaving = new AbortController();
    const left = hands.execute(first, ref, use, false, leaving.signal);
    await until(() => has("started"));
    leaving.abort(new Error("lease lost"));
    await expect(left).rejects.toThrow("lease lost");
    expect(await hands.execute(later(2), ref, use, false, never)).toEqual(done("ran"));
    expect(lines("count")).toBe(1);
  });

  it("refuses an older fence before anything acts", async () => {
    const { first, later, ref, bash, has } = await newHand(place, hands);
    await hands.announce(later(5), ref, never);
    await expect(bash(first, "a", "touch acted")).rejects.toMatchObject({ code: "fenced" });
    await expect(hands.announce(later(4), ref, never)).rejects.toMatchObject({ code: "fenced" });
    await expect(hands.cancel(later(4), ref, "a", never)).rejects.toMatchObject({ code: "fenced" });
    await expect(hands.provision(later(4), { environment_id: "env_1" }, never)).rejects.toMatchObject({ code: "fenced" });
    expect(text(await bash(later(5), "b", "ls"))).toBe("(no output)");
    expect(has("acted")).toBe(false);
  });

  it("starts nothing that waited while a newer fence came", async () => {
    const { first, later, ref, bash, has } = await newHand(place, hands);
    const running = bash(first, "a", "touch started; sleep 0.5; echo ran");
    await until(() => has("started"));
    const waiting = bash(first, "b", "touch acted");
    const read = hands.execute(first, ref, { id: "never", name: "read", input: { file_path: "started" } }, false, never);
    const refused = Promise.all([expect(waiting).rejects.toMatchObject({ code: "fenced" }), expect(read).rejects.toMatchObject({ code: "fenced" })]);
    await hands.announce(later(2), ref, never);
    expect(await running).toEqual(done("ran"));
    await refused;
    expect(has("acted")).toBe(false);
  });

  it("gives a hand to another holder, and refuses the one before", async () => {
    const { first, ref, bash } = await newHand(place, hands);
    const other = holderOf(1);
    await hands.transfer(first, ref, other, never);
    await expect(bash(first, "a", "echo hi")).rejects.toMatchObject({ code: "fenced" });
    expect(await bash(other, "a", "echo hi")).toEqual(done("hi"));
  });

  it("cancels a running call within seconds; its outcome stays", async () => {
    const { first, ref, bash, has } = await newHand(place, hands);
    const running = bash(first, "a", "touch started; sleep 300");
    await until(() => has("started"));
    const asked = Date.now();
    const failed = { type: "failed", reason: "it was cancelled while it ran" };
    expect(await hands.cancel(first, ref, "a", never)).toEqual(failed);
    expect(Date.now() - asked).toBeLessThan(5_000);
    expect(await running).toEqual(failed);
    expect(await bash(first, "a", "touch again")).toEqual(failed);
    expect(await bash(first, "b", "ls")).toEqual(done("started"));
  });

  it("lets a result that exists win over a cancel, and spends the id of a call that never started", async () => {
    const { first, ref, bash, has } = await newHand(place, hands);
    await bash(first, "a", "echo ran");
    expect(await hands.cancel(first, ref, "a", never)).toEqual(done("ran"));
    const failed = { type: "failed", reason: "it was cancelled, before it started" };
    expect(await hands.cancel(first, ref, "b", never)).toEqual(failed);
    expect(await bash(first, "b", "touch acted")).toEqual(failed);
    expect(has("acted")).toBe(false);
  });

  it("runs calls of one hand one at a time, in order; read-only ones beside each other", async () => {
    const { first, bash } = await newHand(place, hands);
    const all = [
      bash(first, "a", "sleep 0.3; echo a >> order"),
      bash(first, "b", "sleep 0.1; echo b >> order"),
      bash(first, "c", "echo c >> order; cat order"),
    ];
    expect(text((await Promise.all(all))[2] ?? done(""))).toBe("a\nb\nc");
  });

  it("bounds how many calls wait for one hand", async () => {
    const { first, ref, bash, has } = await newHand(place, hands);
    const blocker = bash(first, "blocker", "touch started; sleep 300");
    await until(() => has("started"));
    const many = Array.from({ length: 70 }, (_, index) => bash(first, `n${index}`, "true"));
    const early: Outcome[] = [];
    for (const one of many) void one.then((outcome) => early.push(outcome));
    await until(() => early.length === 7);
    expect(new Set(early.map(text))).toEqual(new Set(["failed: the hand has 64 calls that wait; it was not run"]));
    await hands.cancel(first, ref, "blocker", never);
    expect((await blocker).type).toBe("failed");
    expect((await Promise.all(many)).filter(({ type }) => type === "done")).toHaveLength(63);
  });

  it("drops settled results and keeps their ids", async () => {
    const { first, ref, bash, lines } = await newHand(place, hands);
    await bash(first, "a", "echo x >> count");
    await hands.settled(first, ref, ["a"], never);
    expect((await bash(first, "a", "echo x >> count")).type).toBe("unknown");
    expect(lines("count")).toBe(1);
  });

  it("answers bad input and unknown tools with an error for the model", async () => {
    const { first, ref } = await newHand(place, hands);
    const ask = (name: string, input: unknown) => hands.execute(first, ref, { id: `${name}${JSON.stringify(input)}`, name, input }, false, never);
    expect(text(await ask("bash", { comand: "ls" }))).toContain('The input of bash is not valid: Unrecognized key: "comand"');
    expect(await ask("web_fetch", { url: "http://x" })).toMatchObject({ type: "done", isError: true });
  });

  it("releases a session: files, processes and the hand are gone", async () => {
    const { first, ref, bash, workspace, has } = await newHand(place, hands);
    const running = bash(first, "a", "touch started; sleep 300");
    await until(() => has("started"));
    await hands.release(first.session, ref.host, never);
    expect(await running).toMatchObject({ type: "failed", reason: "the hand was given back while it ran" });
    expect(existsSync(workspace)).toBe(false);
    await expect(bash(first, "b", "ls")).rejects.toMatchObject({ code: "hand_lost" });
    await hands.release(first.session, ref.host, never);
    const again = await hands.provision(first, { environment_id: "env_1" }, never);
    expect(again.hand).not.toBe(ref.hand);
  });

  it("lets nobody in without the key, by a foreign name or from a web page", async () => {
    const post = (headers: Record<string, string>) =>
      fetch(`${host.url}/mcp`, { method: "POST", body: "{}", headers: { "content-type": "application/json", ...headers } });
    expect((await post({})).status).toBe(401);
    expect((await post({ authorization: "Bearer wrong" })).status).toBe(401);
    expect((await post({ authorization: `Bearer ${HAND_KEY}`, origin: "https://evil.example" })).status).toBe(403);
    const health = await fetch(`${host.url}/healthz`);
    expect(await health.json()).toEqual({ status: "ok", id: host.id, boot: host.boot });
    expect(JSON.stringify(host.lines)).not.toContain(HAND_KEY);
  });

  it("serves any MCP client: lists and calls the tools of a hand, and those of the host", async () => {
    const { ref, workspace } = await newHand(place, hands);
    writeFileSync(join(workspace, "a.txt"), "from a file");
    const connect = async (path: string) => {
      const client = new Client({ name: "someone-else", version: "1" }, { versionNegotiation: { mode: "auto" } });
      const requestInit = { headers: { authorization: `Bearer ${HAND_KEY}` } };
      await client.connect(new StreamableHTTPClientTransport(new URL(host.url + path), { requestInit }));
      return client;
    };
    const hand = await connect(`/mcp/hands/${ref.hand}`);
    expect((await hand.listTools()).tools.map(({ name, annotations }) => [name, annotations?.readOnlyHint])).toEqual([
      ["bash", false],
      ["read", true],
      ["write", false],
      ["edit", false],
      ["glob", true],
      ["grep", true],
    ]);
    expect(await hand.callTool({ name: "read", arguments: { file_path: "a.txt" } })).toMatchObject({
      content: [{ type: "text", text: "from a file" }],
      isError: false,
    });
    await hand.close();
    const all = await connect("/mcp");
    expect((await all.callTool({ name: "identity", arguments: {} })).structuredContent).toEqual({ id: host.id, boot: host.boot });
    expect((await all.listTools()).tools.map(({ name }) => name)).toEqual([
      "identity",
      "provision",
      "prepare",
      "list_tools",
      "announce",
      "transfer",
      "cancel",
      "settled",
      "release",
      "configured",
      "instances",
    ]);
    await all.close();
  });

  it("serves clients of the handshake era too", async () => {
    const { ref, workspace } = await newHand(place, hands);
    writeFileSync(join(workspace, "a.txt"), "from a file");
    const client = new OldClient({ name: "someone-older", version: "1" });
    const requestInit = { headers: { authorization: `Bearer ${HAND_KEY}` } };
    const transport = new OldTransport(new URL(`${host.url}/mcp/hands/${ref.hand}`), { requestInit });
    await client.connect(transport as OldPeer);
    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(["bash", "read", "write", "edit", "glob", "grep"]);
    expect(await client.callTool({ name: "read", arguments: { file_path: "a.txt" } })).toMatchObject({
      content: [{ type: "text", text: "from a file" }],
    });
    await client.close();
  });
});

describe("a hand host that dies", () => {
  let place: Place;
  afterEach(() => place.clean());

  it("finds its hands and files again, and says of what ran that nobody knows", async () => {
    place = makePlace();
    const before = await place.start();
    const hands = place.client();
    const { first, later, ref, bash, has, lines } = await newHand(place, hands);
    await bash(first, "finished", "A=1; echo x >> count; echo ran");
    await bash(first, "settled", "true");
    await hands.settled(first, ref, ["settled"], never);
    const cut = bash(first, "running", "echo x >> count; touch started; sleep 300");
    await until(() => has("started"));
    const reading = hands.execute(first, ref, { id: "waits", name: "read", input: { file_path: "count" } }, true, never);
    await before.end("SIGKILL");
    const after = await place.start();

    expect([after.id, after.boot]).toEqual([before.id, before.boot + 1]);
    expect(await cut).toEqual({ type: "unknown", reason: "the hand host was restarted while it ran" });
    expect(await reading).toEqual(done("x\nx\n"));
    expect(await bash(later(2), "running", "echo x >> count")).toMatchObject({ type: "unknown" });
    expect(await bash(later(2), "finished", "echo x >> count")).toEqual(done("ran"));
    await expect(bash(first, "stale", "echo x >> count")).rejects.toMatchObject({ code: "fenced" });
    expect(text(await bash(later(2), "next", "echo [$A]"))).toBe("shell restarted; files kept\n[]");
    expect(lines("count")).toBe(2);
  });

  it("is not taken for another one that answers at its address", async () => {
    place = makePlace();
    await place.start();
    const { first, ref } = await newHand(place, place.client());
    const elsewhere = makePlace();
    const other = await elsewhere.start();
    const log = pino({ level: "silent" });
    const misled = makeHands({ resolve: async () => other, local: other, handKey: HAND_KEY, log, handLostMs: 300 });
    const asked = misled.execute(first, ref, { id: "a", name: "bash", input: { command: "ls" } }, false, never);
    await expect(asked).rejects.toMatchObject({ code: "hand_lost", detail: "another hand host answers at this address" });
    await misled.close();
    await elsewhere.clean();
  });

  it("removes folders that no hand owns, and ends what it was asked to release", async () => {
    place = makePlace();
    const before = await place.start();
    const hands = place.client();
    const { ref, bash, first } = await newHand(place, hands);
    await bash(first, "a", "echo kept > file");
    await before.end("SIGKILL");
    const root = join(place.dataDir, "hands/sandboxes");
    mkdirSync(join(root, "hand_nobody/workspace"), { recursive: true });
    await place.start();
    expect(readdirSync(root)).toEqual([ref.hand]);
  });

  it("refuses with hand_lost when nobody answers for long enough", async () => {
    place = makePlace();
    const host = await place.start();
    const hands = place.client(500);
    const { first, bash } = await newHand(place, hands);
    await host.end("SIGKILL");
    await expect(bash(first, "a", "ls")).rejects.toMatchObject({ code: "hand_lost" });
  });

  it("ends running calls as failed at SIGTERM, durably, and exits in time", async () => {
    place = makePlace();
    const before = await place.start();
    const hands = place.client();
    const { first, bash, has } = await newHand(place, hands);
    const running = bash(first, "a", "touch started; sleep 300");
    await until(() => has("started"));
    const asked = Date.now();
    expect(await before.end("SIGTERM")).toBe(0);
    expect(Date.now() - asked).toBeLessThan(5_000);
    const failed = { type: "failed", reason: "the hand host was shut down while it ran" };
    await place.start();
    expect(await running).toEqual(failed);
    expect(await bash(first, "a", "touch again")).toEqual(failed);
    expect(has("again")).toBe(false);
  });

  it("exits when its parent's pipe closes", async () => {
    place = makePlace();
    const host = await place.start();
    const ended = new Promise((resolve) => host.child.once("exit", resolve));
    host.child.stdin?.end();
    expect(await ended).toBe(0);
  });
});
