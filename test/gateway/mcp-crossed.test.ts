// Clients of either era at hands of either era, through the door of a hand: official packages on all four ends.

import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ClientEra, connectClient, type TestClient } from "../support/mcp/clients.ts";
import { RESOURCE, TOOLS } from "../support/mcp/full.ts";
import { startFullNew } from "../support/mcp/full-new.ts";
import { type FullServer, makeServer, startFullOld } from "../support/mcp/full-old.ts";
import { FIRST, openRelayDoors, type RelayDoors } from "../support/mcp/relay-doors.ts";
import { type RunningRelay, startServerRelay } from "../support/mcp/server-relay.ts";
import { startSseServer } from "../support/mcp/sse-server.ts";
import { until } from "../support/until.ts";

const ERAS: readonly ClientEra[] = ["handshake", "stateless"];
const HANDS = ["old", "aside", "sse", "new"] as const;
const textIn = (result: Readonly<Record<string, unknown>>): unknown => (result.content as { text?: unknown }[])[0]?.text;

let doors: RelayDoors;
let host: RunningRelay;
const servers: Record<string, Pick<FullServer, "url" | "seen" | "close">> = {};
beforeAll(async () => {
  host = await startServerRelay({});
  doors = await openRelayDoors({ handsUrl: host.origin });
  servers.old = await startFullOld();
  servers.aside = await startFullOld({ unrelated: true });
  servers.new = await startFullNew();
  const seen: string[] = [];
  servers.sse = { ...(await startSseServer(() => makeServer(seen, false))), seen };
  for (const [name, { url }] of Object.entries(servers)) await doors.register(name, url, name === "sse" ? "sse" : "http");
});
afterAll(async () => {
  await doors.close();
  await host.close();
  await Promise.all(Object.values(servers).map((server) => server.close()));
});

for (const era of ERAS)
  for (const hand of HANDS)
    describe(`a client of the ${era} era at the hand "${hand}"`, () => {
      let client: TestClient;
      beforeAll(async () => {
        client = await connectClient(era, doors.url(hand), { headers: FIRST });
      });
      afterAll(() => client.close());
      const any = () => client.old ?? client.new;
      const seen = () => servers[hand]?.seen ?? [];

      test("learns what the hand is, and has its lists", async () => {
        expect(any()?.getServerVersion()?.name).toBe(hand === "new" ? "full-new" : "full-old");
        expect(any()?.getInstructions()).toBe("Use it well.");
        expect((await any()?.listTools())?.tools).toEqual(TOOLS);
        expect((await any()?.listPrompts())?.prompts.map(({ name }) => name)).toEqual(["about"]);
        expect((await any()?.listResources())?.resources).toEqual([RESOURCE]);
      });

      test("calls a tool; structured content and vendors' keys pass both ways", async () => {
        const result = await client.call("add", { a: 2, b: 3 }, { meta: { "vendor.example/sent": "yes" } });
        expect(result).toMatchObject({
          content: [{ type: "text", text: "5" }],
          structuredContent: { sum: 5 },
          _meta: { "vendor.example/kept": { from: "yes" } },
        });
      });

      test("reads, gets a prompt and completes", async () => {
        expect((await any()?.readResource({ uri: RESOURCE.uri }))?.contents).toEqual([{ uri: RESOURCE.uri, text: "the words" }]);
        const prompt = await any()?.getPrompt({ name: "about", arguments: { topic: "bees" } });
        expect(prompt?.messages[0]?.content).toEqual({ type: "text", text: "About bees" });
        const ref = { type: "ref/prompt" as const, name: "about" };
        expect((await any()?.complete({ ref, argument: { name: "topic", value: "be" } }))?.completion.values).toEqual(["be!"]);
      });

      test("hears progress, in order", async () => {
        const told: unknown[] = [];
        expect(textIn(await client.call("steps", {}, { onprogress: ({ progress, message }) => void told.push([progress, message]) }))).toBe(
          "stepped",
        );
        expect(told).toEqual([
          [1, "step 1"],
          [2, "step 2"],
          [3, "step 3"],
        ]);
      });

      test("an error keeps its code and data", async () => {
        const error = await client.call("fail").then(
          () => null,
          (thrown: unknown) => thrown,
        );
        expect(error).toMatchObject({ code: -32_050, data: { floor: 3 } });
        expect(String(error)).toContain("the machine is on fire");
      });

      test("a resource that is not there is the error that its era has for it", async () => {
        const error = await any()
          ?.readResource({ uri: "words://none" })
          .then(
            () => null,
            (thrown: unknown) => thrown,
          );
        expect(error).toMatchObject({ code: era === "handshake" ? -32_002 : -32_602, data: { uri: "words://none" } });
      });

      test("cancelling reaches the hand", async () => {
        const before = seen().filter((said) => said === "cancelled wait").length;
        const began = seen().filter((said) => said === "call wait").length;
        const off = new AbortController();
        const call = client.call("wait", {}, { signal: off.signal });
        call.catch(() => {});
        await until(() => seen().filter((said) => said === "call wait").length > began);
        off.abort();
        await expect(call).rejects.toThrow();
        await until(() => seen().filter((said) => said === "cancelled wait").length > before);
      });

      test("is asked by the hand: a form, a sample, roots", async () => {
        expect(textIn(await client.call("ask"))).toMatch(/^accept \{"name":"Ada"\}/);
        expect(textIn(await client.call("sample"))).toBe('sampled {"type":"text","text":"well said"}');
        expect(textIn(await client.call("roots"))).toBe("file:///home/ada");
      });

      test("is asked twice in one call, which runs once", async () => {
        const before = seen().filter((said) => said === "call both").length;
        const asked = client.asked.length;
        expect(textIn(await client.call("both"))).toBe('accept then {"type":"text","text":"well said"}');
        expect(client.asked.slice(asked)).toEqual(["elicitation/create", "sampling/createMessage"]);
        if (hand !== "new") expect(seen().filter((said) => said === "call both")).toHaveLength(before + 1);
      });

      test("hears of a changed list and of a resource that it follows", async () => {
        await client.follow(RESOURCE.uri);
        // Following takes its way to the hand; a change before that is nobody's to hear.
        await until(
          async () => {
            await client.call("change");
            return client.heard.includes("tools") && client.heard.includes(RESOURCE.uri);
          },
          { pollMs: 200 },
        );
        expect(new Set(client.heard.filter((said) => !said.includes("log")))).toEqual(new Set(["tools", RESOURCE.uri]));
      });
    });
