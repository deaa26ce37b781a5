// Turns by MCP, in an installation of real processes: an answer that is waited for, a person who is asked, a call that is called off.

import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { until } from "../support/until.ts";
import { asking, type CaseSession, Stage, stopsOf, TOOLSET } from "./cases/stage.ts";

const Turn = z.looseObject({
  is_over: z.boolean(),
  reply: z.string(),
  steps: z.array(z.looseObject({ tool: z.string(), is_error: z.boolean().nullable() })),
  waiting_for: z.array(z.looseObject({ tool_use_id: z.string(), name: z.string(), kind: z.string(), input: z.unknown() })),
  session: z.looseObject({ status: z.string(), session_id: z.string() }),
  after: z.number(),
  next: z.string(),
});

let stage: Stage;
beforeAll(async () => {
  stage = await Stage.open();
});
afterAll(() => stage.close());

type Person = ((message: string) => { decision: "allow" | "deny" }) | null;
const CALL_MS = 60_000;

/** A client of either line, with a person behind it or not. */
async function connect(era: "v1" | "v2", person: Person = null) {
  const url = new URL(`${stage.installation.url}/mcp`);
  const requestInit = { headers: { authorization: `Bearer ${stage.installation.apiKey}` } };
  const capabilities = person ? { elicitation: {} } : {};
  const answer = (params: { message: string }) => ({ action: "accept" as const, content: person?.(params.message) ?? {} });
  const client = era === "v1" ? new Client({ name: "t", version: "1" }, { capabilities }) : modern(capabilities);
  if (client instanceof Client) {
    if (person) client.setRequestHandler(ElicitRequestSchema, async ({ params }) => answer(params));
    await client.connect(new StreamableHTTPClientTransport(url, { requestInit }) as never);
  } else {
    if (person) client.setRequestHandler("elicitation/create", async ({ params }) => answer(params));
    await client.connect(new ModernTransport(url, { requestInit }));
  }
  const call = async (
    name: string,
    args: Record<string, unknown>,
    options: { onprogress?: (told: { progress: number; message?: string | undefined }) => void; signal?: AbortSignal } = {},
  ) => {
    const result =
      client instanceof Client
        ? await client.callTool({ name, arguments: args }, undefined, { timeout: CALL_MS, resetTimeoutOnProgress: true, ...options })
        : await client.callTool({ name, arguments: args }, { timeout: CALL_MS, resetTimeoutOnProgress: true, ...options });
    if (result.isError) throw new Error(JSON.stringify(result.content));
    return Turn.parse(result.structuredContent);
  };
  return { call, close: () => client.close() };
}
const modern = (capabilities: object) => new ModernClient({ name: "t", version: "1" }, { capabilities, versionNegotiation: { mode: "auto" } });

const script = (session: CaseSession, ...lines: string[]) => `${lines.join("\n")}\n(${session.nonce})`;

describe.each(["v1", "v2"] as const)("with the official client %s", (era) => {
  test("a message is answered by what the agent says, and progress comes meanwhile", async () => {
    const session = await stage.session([TOOLSET]);
    const { call, close } = await connect(era);
    const told: { progress: number; message?: string | undefined }[] = [];
    const message = script(session, 'call bash: {"command":"echo made > file.txt"}', "---", "say: the file is made");
    const turn = await call("send_message", { session_id: session.id, message, wait_seconds: 50 }, { onprogress: (each) => void told.push(each) });
    expect(turn).toMatchObject({ is_over: true, reply: "the file is made", steps: [{ tool: "bash", is_error: false }], waiting_for: [] });
    expect(told.map(({ message: what }) => what)).toEqual(expect.arrayContaining(["The agent uses bash.", "bash is done."]));
    expect(told.map(({ progress }) => progress)).toEqual([...told.keys()].map((n) => n + 1));
    const again = await call("wait_for_session", { session_id: session.id, wait_seconds: 5 });
    expect(again).toMatchObject({ is_over: true, reply: "the file is made", after: turn.after });
    await close();
  });

  test("a wait that is over before the turn says where to go on", async () => {
    const session = await stage.session([TOOLSET]);
    const { call, close } = await connect(era);
    const message = script(session, 'call bash: {"command":"sleep 3"}', "---", "say: slept");
    const first = await call("send_message", { session_id: session.id, message, wait_seconds: 0.5 });
    expect(first).toMatchObject({ is_over: false, session: { status: "running" }, next: expect.stringContaining("wait_for_session") });
    const rest = await call("wait_for_session", { session_id: session.id, after: first.after, wait_seconds: 50 });
    expect(rest).toMatchObject({ is_over: true, reply: "slept" });
    await close();
  });

  test.each(["allow", "deny"] as const)("a tool that needs a person's word is asked about through the client: %s", async (decision) => {
    const session = await stage.session([asking("bash")]);
    const asked: string[] = [];
    const { call, close } = await connect(era, (message) => {
      asked.push(message);
      return { decision };
    });
    const message = script(session, 'call bash: {"command":"echo once >> marks.txt; cat marks.txt"}', "---", "say: done");
    const turn = await call("send_message", { session_id: session.id, message, wait_seconds: 50 });
    expect(turn).toMatchObject({ is_over: true, reply: "done", waiting_for: [], steps: [{ tool: "bash", is_error: decision === "deny" }] });
    expect(asked).toEqual([expect.stringContaining("echo once >> marks.txt")]);
    const events = await session.events();
    expect(events.filter(({ type }) => type === "user.message")).toHaveLength(1);
    expect(stopsOf(events)).toEqual(["requires_action", "end_turn"]);
    await close();
  });

  test("with a client that can't ask, the call says what waits, and confirm_tool answers it", async () => {
    const session = await stage.session([asking("bash")]);
    const { call, close } = await connect(era);
    const message = script(session, 'call bash: {"command":"echo ran"}', "---", "say: confirmed");
    const turn = await call("send_message", { session_id: session.id, message, wait_seconds: 50 });
    expect(turn).toMatchObject({ is_over: true, waiting_for: [{ name: "bash", kind: "confirmation", input: { command: "echo ran" } }] });
    await expect(call("send_message", { session_id: session.id, message: "more" })).rejects.toThrow("waiting on responses");
    const [use] = turn.waiting_for;
    const rest = await call("confirm_tool", { session_id: session.id, tool_use_id: use?.tool_use_id, decision: "allow", wait_seconds: 50 });
    expect(rest).toMatchObject({ is_over: true, reply: "confirmed", waiting_for: [] });
    await close();
  });

  test.each(["leave", "interrupt"] as const)("a call that is called off: its turn is %s", async (on_cancel) => {
    const session = await stage.session([TOOLSET]);
    const { call, close } = await connect(era);
    const stop = new AbortController();
    const message = script(session, 'call bash: {"command":"sleep 4"}', "---", "say: went on");
    const calling = call("send_message", { session_id: session.id, message, wait_seconds: 50, on_cancel }, { signal: stop.signal });
    const failed = expect(calling).rejects.toThrow();
    await session.has("agent.tool_use");
    stop.abort();
    await failed;
    await session.settled();
    expect(await session.lastWords()).toBe(on_cancel === "leave" ? "went on" : "");
    expect(await session.events("user.interrupt")).toHaveLength(on_cancel === "leave" ? 0 : 1);
    await close();
  });
});

test("interrupt_session ends a turn that would take long", async () => {
  const session = await stage.session([TOOLSET]);
  const { call, close } = await connect("v2");
  await call("send_message", { session_id: session.id, message: script(session, 'call bash: {"command":"sleep 60"}'), wait_seconds: 0 });
  await session.has("agent.tool_use");
  expect(await call("interrupt_session", { session_id: session.id, wait_seconds: 20 })).toMatchObject({ is_over: true, session: { status: "idle" } });
  await until(async () => (await session.status()) === "idle");
  await close();
});
