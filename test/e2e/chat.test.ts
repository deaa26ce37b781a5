// The chat example's page as people use it: the product with a scripted model, the example's server, and a real browser.

import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { Live, Item as Shown } from "../examples/chat/items.ts";
import { Browser, type Page } from "../support/browser.ts";
import { freePort } from "../support/free-port.ts";
import { needs } from "../support/real-part.ts";
import { until } from "../support/until.ts";
import { API_KEY, type ChatKit, startChatKit, WAIT_MS } from "./chat-kit.ts";

let kit: ChatKit;
beforeAll(async () => {
  kit = await startChatKit();
});
afterAll(() => kit.close());

type Item = Shown | Live | { readonly type: "conversation"; readonly id: string };

const lines = (...script: string[]): string => script.join("\n");

needs("chromium")("the chat page", () => {
  let browser: Browser;
  let url: string;
  let pages: Page[];
  beforeAll(async () => {
    url = await kit.start("test/examples/chat/web").listening("chat-web");
    browser = await Browser.launch();
  });
  afterAll(() => browser.close());
  beforeEach(() => {
    pages = [];
  });
  afterEach(async ({ task }) => {
    if (task.result?.state === "fail") {
      const file = join(tmpdir(), `chat-${task.id}.png`);
      await pages.at(-1)?.screenshot(file);
      process.stderr.write(`What the page looked like: ${file}\n`);
    }
    expect(pages.flatMap(({ problems }) => problems)).toEqual([]);
  });

  async function open(): Promise<Page> {
    const page = await browser.open(url);
    pages.push(page);
    await ready(page);
    return page;
  }

  const stateOf = (page: Page) => page.evaluate(`document.querySelector("#state").textContent`);
  /** What is on the page: kind and words of each row. */
  const rowsOf = async (page: Page) =>
    (await page.evaluate(`[...document.querySelectorAll("#log > li")].map((row) => row.classList.contains("call")
      ? ["call", row.querySelector("b").textContent, row.querySelector("h2 span").textContent, row.querySelector("details pre")?.textContent ?? null]
      : [row.className.trim(), row.textContent])`)) as unknown[][];
  const ready = (page: Page) => until(async () => (await stateOf(page)) === "Ready", { timeoutMs: WAIT_MS, what: () => `a page that is ready` });
  async function ask(page: Page, text: string): Promise<void> {
    await page.click("#text");
    await page.type(text);
    await page.press("Enter");
    await until(async () => (await page.evaluate(`document.querySelector("#text").value`)) === "", {
      timeoutMs: WAIT_MS,
      what: "a message that was sent",
    });
  }
  /** Waits until the page shows exactly these rows and rests. */
  async function shows(page: Page, rows: unknown[][]): Promise<void> {
    let last: unknown;
    const isSo = async () => {
      last = [await stateOf(page), await rowsOf(page)];
      return JSON.stringify(last) === JSON.stringify(["Ready", rows]);
    };
    await until(isSo, { timeoutMs: WAIT_MS, what: () => `these rows: ${JSON.stringify(rows)}\nbut: ${JSON.stringify(last)}` });
  }
  const typed = (page: Page) =>
    until(async () => (await page.evaluate(`document.querySelector(".typing")?.textContent`)) as string | undefined, { timeoutMs: WAIT_MS });

  test("shows an answer while it is written, the tool calls in it, and no text as anything but text", async () => {
    const page = await open();
    const markup = `<img src=x onerror="document.title = 'owned'"> <b>bold</b>`;
    const question = lines(
      `say: I write it down: ${markup}`,
      'call write: {"file_path": "/workspace/note.txt", "content": "hello"}',
      "repeat: 40 word\\u{20}",
      "token_delay: 40",
      "chunk: 5",
    );
    await ask(page, question);
    const [first, second] = [await typed(page), "word ".repeat(40)];
    expect(`I write it down: ${markup}${second}`).toContain(first);
    await until(async () => ((await page.evaluate(`document.querySelector(".typing")?.textContent ?? ""`)) as string).startsWith("word word"), {
      timeoutMs: WAIT_MS,
      what: "the beginning of the second answer",
    });
    const [, , call] = await rowsOf(page);
    expect(call?.slice(0, 3)).toEqual(["call", "write", "done"]);
    await shows(page, [
      ["words user", question],
      ["words agent", `I write it down: ${markup}`],
      ["call", "write", "done", String(call?.[3])],
      ["words agent", second],
    ]);
    expect(await page.evaluate("document.title")).toBe("Chat");
    expect(await page.evaluate("document.querySelectorAll('#log img, #log .words *').length")).toBe(0);
  });

  test("asks before a command runs: allowed by mouse it runs, denied by keyboard it doesn't", async () => {
    const page = await open();
    const question = lines("say: May I?", 'call bash: {"command": "echo from the sandbox"}', "echo: It said:");
    await ask(page, question);
    await page.click(".allow");
    const allowed = [
      ["words user", question],
      ["words agent", "May I?"],
      ["call", "bash", "done", "from the sandbox"],
      ["words agent", "It said: from the sandbox"],
    ];
    await shows(page, allowed);

    const again = lines('call bash: {"command": "rm -rf /workspace"}', "say: Then I leave it.");
    await ask(page, again);
    await until(() => page.evaluate(`document.querySelector(".deny")`).then((there) => there !== null), { timeoutMs: WAIT_MS, what: "the question" });
    expect(await stateOf(page)).toMatch(/waiting for your answer|working/);
    await page.evaluate(`document.querySelector(".allow").focus()`);
    await page.press("Tab");
    await page.press("Enter");
    await shows(page, [
      ...allowed,
      ["words user", again],
      ["call", "bash", "denied", "The user denied this call."],
      ["words agent", "Then I leave it."],
    ]);
    expect(await page.evaluate("document.activeElement.id")).toBe("text");
  });

  test("stops the agent, forgets what it had not finished, and goes on with the next message", async () => {
    const page = await open();
    const endless = lines("repeat: 4000 on and on\\u{20}", "token_delay: 30", "chunk: 8");
    await ask(page, endless);
    await typed(page);
    await page.click("#stop");
    const stopped = [
      ["words user", endless],
      ["note", "You stopped the agent."],
    ];
    await shows(page, stopped);
    await ask(page, "say: Here again.");
    await shows(page, [...stopped, ["words user", "say: Here again."], ["words agent", "Here again."]]);
  });

  test("shows the whole conversation again after a reload, nothing doubled, and a question that is still open", async () => {
    const page = await open();
    await ask(page, "say: One.");
    await shows(page, [
      ["words user", "say: One."],
      ["words agent", "One."],
    ]);
    const question = lines('call bash: {"command": "echo later"}', "say: Two.");
    await ask(page, question);
    await until(() => page.evaluate(`document.querySelector(".allow") !== null`), { timeoutMs: WAIT_MS, what: "the question" });
    await page.reload();
    await page.click(".allow");
    await shows(page, [
      ["words user", "say: One."],
      ["words agent", "One."],
      ["words user", question],
      ["call", "bash", "done", "later"],
      ["words agent", "Two."],
    ]);
  });

  test("comes back by itself when the gateway is killed in the middle of a turn, with the full answer, nothing doubled", async () => {
    const page = await open();
    await ask(page, "say: Before.");
    await shows(page, [
      ["words user", "say: Before."],
      ["words agent", "Before."],
    ]);
    const question = lines("repeat: 60 steady\\u{20}", "token_delay: 50", "chunk: 7");
    await ask(page, question);
    await typed(page);
    const restarts = kit.product.linesOf("child.started", { child: "gateway" }).length;
    process.kill(Number(kit.product.linesOf("child.started", { child: "gateway" }).at(-1)?.pid), "SIGKILL");
    await until(async () => (await stateOf(page)) === "Connecting …", { timeoutMs: WAIT_MS, what: "a page that notices" });
    expect(await page.evaluate(`document.querySelector(".typing")`)).toBeNull();
    await kit.product.logged("child.started", { fields: { child: "gateway" }, after: restarts, timeoutMs: WAIT_MS });
    await shows(page, [
      ["words user", "say: Before."],
      ["words agent", "Before."],
      ["words user", question],
      ["words agent", "steady ".repeat(60)],
    ]);
  });

  test("the application's own tool is answered even when nobody looks", async () => {
    const page = await open();
    await ask(page, lines("wait: 1500", 'call current_time: {"timezone": "Europe/Paris"}', "echo: In Paris:"));
    await page.goto("about:blank");
    await until(() => kit.model.requests({ contains: "Europe/Paris" }).length >= 2, { timeoutMs: WAIT_MS, what: "the model that was told the time" });
    await page.goto(url);
    await until(async () => (await rowsOf(page)).at(-1)?.[0] === "words agent", { timeoutMs: WAIT_MS, what: "the answer" });
    const [, call, answer] = await rowsOf(page);
    expect(call?.slice(0, 3)).toEqual(["call", "current_time", "done"]);
    expect(call?.[3]).toMatch(/20\d\d at .*\(20\d\d-\d\d-\d\dT/);
    expect(answer?.[1]).toBe(`In Paris: ${call?.[3]}`);
  });

  test("two browsers never see each other's conversation, and a new conversation leaves the old one", async () => {
    const [one, other] = [await open(), await open()];
    await ask(one, "say: For one.");
    await shows(one, [
      ["words user", "say: For one."],
      ["words agent", "For one."],
    ]);
    expect(await rowsOf(other)).toEqual([]);
    await ask(other, "say: For the other.");
    const others = [
      ["words user", "say: For the other."],
      ["words agent", "For the other."],
    ];
    await shows(other, others);
    await one.reload();
    await shows(one, [
      ["words user", "say: For one."],
      ["words agent", "For one."],
    ]);
    expect(await one.evaluate("document.cookie")).toBe("");
    await one.click("#new");
    await shows(one, []);
    await ask(one, "say: Afresh.");
    await shows(one, [
      ["words user", "say: Afresh."],
      ["words agent", "Afresh."],
    ]);
    await shows(other, others);
  });

  test("the server does nothing for another site, under another name, or for a cookie that it did not make", async () => {
    const message = JSON.stringify({ text: "say: no", key: "key-of-a-test" });
    const send = (headers: Record<string, string>) => statusOf(`${url}/messages`, { "content-type": "application/json", ...headers }, message);
    const before = kit.model.stats().total;
    expect(await send({ origin: "http://evil.example" })).toBe(403);
    expect(await send({})).toBe(403);
    expect(await send({ origin: "http://evil.example", host: "evil.example" })).toBe(421);
    expect(await statusOf(`${url}/confirm`, { origin: url, "content-type": "application/json" }, `{"callId":"x","isAllowed":true,"more":1}`)).toBe(
      400,
    );
    expect(
      await statusOf(`${url}/interrupt`, { origin: url, "content-type": "application/json", cookie: "chat=c2Vzbl8x" }, `{"key":"key-of-a-test"}`),
    ).toBe(410);
    expect(kit.model.stats().total).toBe(before);
    const page = await fetch(url);
    expect(page.headers.get("content-security-policy")).toContain("default-src 'none'; script-src 'self'");
    for (const file of ["", "chat.mjs", "chat.css"]) expect(await (await fetch(`${url}/${file}`)).text()).not.toContain(API_KEY);
    const first = await fetch(`${url}/conversation`, {
      method: "POST",
      headers: { origin: url, "content-type": "application/json" },
      body: `{"key":"key-of-a-test"}`,
    });
    const cookie = first.headers.get("set-cookie") ?? "";
    expect(cookie).toMatch(/^chat=[\w-]+; Max-Age=\d+; Path=\/; HttpOnly; SameSite=Strict$/);
    expect(Buffer.from(cookie.slice("chat=".length, cookie.indexOf(";")), "base64url").toString("latin1")).not.toContain("sesn_");
  });

  test("a stream goes on after Last-Event-ID, and a new one gives everything", async () => {
    const origin = { origin: url, "content-type": "application/json" };
    const made = await fetch(`${url}/conversation`, { method: "POST", headers: origin, body: `{"key":"key-of-another"}` });
    const cookie = (made.headers.get("set-cookie") ?? "").split(";")[0] ?? "";
    const message = JSON.stringify({ text: "say: Hello.", key: "key-of-another" });
    // Twice with one key is once.
    for (const _ of [1, 2])
      expect((await fetch(`${url}/messages`, { method: "POST", headers: { ...origin, cookie }, body: message })).status).toBe(204);
    await follow(url, { cookie }, (item) => item.type === "status" && item.status === "idle");
    const all = await follow(url, { cookie }, (item) => item.type === "link");
    expect(all.map(({ item }) => item.type)).toEqual(["conversation", "status", "user", "agent", "status", "link"]);
    const place = all[2]?.id ?? "";
    const rest = await follow(url, { cookie, "last-event-id": place }, (item) => item.type === "link");
    expect(rest).toEqual([all[0], ...all.slice(3)]);
  });

  test("when the web server dies, the page comes back to its conversation, nothing doubled", async () => {
    const port = String(await freePort());
    const serve = () => kit.start("test/examples/chat/web", { CHAT_PORT: port });
    const server = serve();
    const page = await browser.open(await server.listening("chat-web"));
    pages.push(page);
    await ready(page);
    await ask(page, "say: One.");
    const one = [
      ["words user", "say: One."],
      ["words agent", "One."],
    ];
    await shows(page, one);
    server.kill("SIGKILL");
    await until(async () => (await stateOf(page)) === "Connecting …", { timeoutMs: WAIT_MS, what: "a page that notices" });
    await serve().listening("chat-web");
    await shows(page, one);
    await ask(page, "say: Two.");
    await shows(page, [...one, ["words user", "say: Two."], ["words agent", "Two."]]);
  });
});

/** What one more look at a conversation gives, up to an item that fits. */
async function follow(url: string, headers: Record<string, string>, isLast: (item: Item) => boolean): Promise<{ id: string | null; item: Item }[]> {
  const answer = await fetch(`${url}/events`, { headers, signal: AbortSignal.timeout(WAIT_MS) });
  const frames: { id: string | null; item: Item }[] = [];
  let text = "";
  for await (const part of (answer.body ?? new ReadableStream()).pipeThrough(new TextDecoderStream())) {
    text += part;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const [, id = null, data] = /^(?:id: (\S+)\n)?data: (.*)$/.exec(text.slice(0, end)) ?? [];
      text = text.slice(end + 2);
      if (data === undefined) continue;
      const item = JSON.parse(data) as Item;
      frames.push({ id, item });
      if (isLast(item)) return frames;
    }
  }
  throw new Error(`The stream ended: ${JSON.stringify(frames)}`);
}

/** With headers that fetch doesn't let one set. */
function statusOf(url: string, headers: Record<string, string>, body: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: "POST", headers, agent: false }, (answer) => {
      answer.resume();
      resolve(answer.statusCode ?? 0);
    });
    sent.once("error", reject);
    sent.end(body);
  });
}
