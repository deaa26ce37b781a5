// The door of one session's hands (/mcp/sessions/{id}): what it shows, how a call runs between turns and within one, and what the log says of it.

import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { META } from "../../hands/hand.ts";
import { servers, TOOLSET, toolset } from "../harnesses/agents.ts";
import { RawServer, says, tool } from "../support/mcp/raw.ts";
import { API_KEY, connectHands, type Era, type Gateways, openGateways } from "../support/session-door.ts";
import { startNode, type TestNode, type TestSession, until } from "./node.ts";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

let node: TestNode;
let gateways: Gateways;
const started: RawServer[] = [];
beforeAll(async () => {
  node = await startNode();
  gateways = await openGateways(node, 2);
});
beforeEach(async () => {
  await node.work();
});
afterEach(async () => {
  await node.rest();
  await Promise.all(started.splice(0).map((server) => server.close()));
});
afterAll(async () => {
  await gateways.close();
  await node.close();
});

async function serve(options: Parameters<typeof RawServer.start>[0] = {}): Promise<RawServer> {
  const server = await RawServer.start({ hasSessions: true, ...options });
  started.push(server);
  return server;
}

const doorOf = (session: TestSession, replica = 0) => `${gateways.urls[replica]}/mcp/sessions/${session.id}`;
const connect = (era: Era, session: TestSession, options?: Parameters<typeof connectHands>[3]) =>
  connectHands(era, doorOf(session), API_KEY, options);
/** What of the log concerns calls. */
const callsIn = async (session: TestSession) =>
  (await session.log()).flatMap(({ entry }) => {
    const { type } = entry;
    return /^log\.(asked|taken|called_off)$|tool_(use|result)$|status_/.test(type) ? [type] : [];
  });

describe.each(["v1", "v2"] as const)("a client of the line %s", (era) => {
  test("sees the tools as the model sees them, and runs them between turns without a turn", async () => {
    const session = await node.open([TOOLSET]);
    const { tools, call, close } = await connect(era, session);
    const shown = await tools();
    expect(shown.map(({ name }) => name)).toEqual([
      ...["bash", "read", "write", "edit", "glob", "grep"],
      ...["mcp__session__get_events", "mcp__session__search_events", "mcp__session__rewind"],
    ]);
    expect(shown.map(({ annotations }) => annotations?.readOnlyHint)).toEqual([false, true, false, false, true, true, true, true, true]);
    expect(await call("bash", { command: "echo kept > file.txt; echo out" })).toMatchObject({ text: "out", isError: false });
    expect(await call("read", { file_path: "/workspace/file.txt" })).toMatchObject({ text: expect.stringContaining("kept") });
    await session.idle();
    const one = ["log.asked", "log.taken", "agent.tool_use", "agent.tool_result"];
    expect(await callsIn(session)).toEqual([...one, ...one]);
    // A later turn finds the same sandbox.
    await session.say('call bash: {"command":"cat file.txt"}\necho: read');
    await session.idle();
    expect((await session.results()).at(-1)).toEqual({ text: "kept", isError: false });
    expect(await session.texts()).toEqual(["read kept"]);
    await close();
  });

  test("uses an MCP server of the agent, also while a turn runs", async () => {
    const server = await serve({ tools: [tool("search")], call: (_name, input) => says(`found ${JSON.stringify(input)}`) });
    const { tools, mcp_servers } = servers({ docs: server.url });
    const session = await node.open([TOOLSET, ...tools], { mcp_servers });
    await session.say('call bash: {"command":"sleep 2; echo slept"}\n---\nsay: done');
    await session.has("agent.tool_use");
    const { call, close } = await connect(era, session);
    expect(await call("mcp__docs__search", { text: "x" })).toMatchObject({ text: 'found {"text":"x"}', isError: false });
    expect((await session.log()).some(({ entry }) => entry.type === "agent.tool_result")).toBe(false);
    await session.idle();
    expect(await session.texts()).toEqual(["done"]);
    expect(server.count("tools/call")).toBe(1);
    await close();
  });

  test("is refused what asks a person first, or asks the person through the client", async () => {
    const session = await node.open([toolset({ bash: "always_ask", write: "off" })]);
    const alone = await connect(era, session);
    expect(await alone.call("bash", { command: "echo no" })).toMatchObject({ isError: true, text: expect.stringContaining("asks a person first") });
    await expect(alone.call("write", { file_path: "/workspace/a", content: "" })).rejects.toThrow("there is no such tool");
    const questions: string[] = [];
    for (const decision of ["deny", "allow"] as const) {
      const person = (message: string) => {
        questions.push(message);
        return decision;
      };
      const asked = await connect(era, session, { person });
      const result = await asked.call("bash", { command: "echo yes" });
      expect(result).toMatchObject(
        decision === "allow" ? { isError: false, text: "yes" } : { isError: true, text: expect.stringContaining("did not allow") },
      );
      await asked.close();
    }
    expect(questions).toEqual(Array(2).fill(expect.stringContaining("echo yes")));
    expect((await callsIn(session)).filter((type) => type === "agent.tool_use")).toHaveLength(1);
    await alone.close();
  });

  test("calls off what it asked for: the command ends, and the log says so", async () => {
    const session = await node.open([TOOLSET]);
    const { call, close } = await connect(era, session);
    const stop = new AbortController();
    const calling = call("bash", { command: "echo began > began; sleep 50; echo ended > ended" }, { signal: stop.signal });
    const failed = expect(calling).rejects.toThrow();
    await session.has("agent.tool_use");
    stop.abort();
    await failed;
    const result = await session.has("agent.tool_result");
    expect(result.entry).toMatchObject({ is_error: true, content: [{ text: expect.stringContaining("called off") }] });
    await session.idle();
    expect((await call("bash", { command: "ls" })).text).not.toContain("ended");
    await close();
  });

  test("runs a call once that it names and sends twice, at whatever replica", async () => {
    const session = await node.open([TOOLSET]);
    const meta = { [META.toolUseId]: "my call" };
    const first = await connect(era, session);
    const second = await connectHands(era, doorOf(session, 1), API_KEY);
    const command = "echo once >> marks; cat marks";
    const both = await Promise.all([first.call("bash", { command }, { meta }), second.call("bash", { command }, { meta })]);
    expect(both.map(({ text }) => text)).toEqual(["once", "once"]);
    expect(await second.call("bash", { command: "another" }, { meta })).toMatchObject({
      isError: true,
      text: expect.stringContaining("another body"),
    });
    expect((await session.log()).filter(({ entry }) => entry.type === "agent.tool_use")).toHaveLength(1);
    await Promise.all([first.close(), second.close()]);
  });
});

test("a new message begins its turn while a long call of the door still runs", async () => {
  const server = await serve({ call: () => undefined });
  const { tools, mcp_servers } = servers({ slow: server.url });
  const session = await node.open(tools, { mcp_servers });
  await session.say("say: first");
  await session.idle();
  const { call, close } = await connect("v2", session);
  const stop = new AbortController();
  const calling = expect(call("mcp__slow__echo", {}, { signal: stop.signal })).rejects.toThrow();
  await until(() => server.count("tools/call") === 1, "the call at the server");
  await session.say("say: second");
  await until(async () => (await session.texts()).length === 2, "the answer to the message");
  stop.abort();
  await calling;
  await session.idle();
  expect(await session.texts()).toEqual(["first", "second"]);
  await close();
});

test("an interrupt ends a call of the door as it ends the model's", async () => {
  const session = await node.open([TOOLSET]);
  const { call, close } = await connect("v1", session);
  const calling = call("bash", { command: "sleep 50" });
  await session.has("agent.tool_use");
  await session.interrupt();
  expect(await calling).toMatchObject({ isError: true, text: expect.stringContaining("interrupted") });
  await session.idle();
  await close();
});
