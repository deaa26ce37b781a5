// Where the browser ends (gateway/connect/loopback.ts), and the words of the command.

import { request } from "node:http";
import { afterEach, expect, test } from "vitest";
import { type Loopback, openLoopback } from "../../gateway/connect/loopback.ts";
import { readWords } from "../../gateway/connect/words.ts";

const opened: Loopback[] = [];
afterEach(async () => {
  await Promise.all(opened.splice(0).map((each) => each.close()));
});
async function open(): Promise<Loopback> {
  const loopback = await openLoopback(0);
  opened.push(loopback);
  return loopback;
}

interface Page {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly text: string;
}

/** One request, whose `Host` and method may be anything. */
function get(url: string, { host = new URL(url).host, method = "GET" } = {}): Promise<Page> {
  return new Promise((resolve, reject) => {
    request(url, { method, headers: { host } }, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (piece: string) => (text += piece));
      answer.on("end", () => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text }));
    })
      .on("error", reject)
      .end();
  });
}

const SOON = () => AbortSignal.timeout(10_000);

test("only the answer with the state that is waited for counts, and it is told what came of it", async () => {
  const loopback = await open();
  const at = loopback.redirectUri;
  const answered = loopback.answer("right", SOON());
  const wrong = ["?code=c", "?state=wrong&code=c", "?state=right", "?state=right&code=c&code=d", "?state=right&state=right&code=c", ""];
  for (const query of wrong) expect((await get(`${at}${query}`)).status).toBe(400);
  expect((await get(`${at}?state=right&code=c`, { method: "POST" })).status).toBe(404);
  expect((await get(`${at}?state=right&code=c`, { host: "attacker.example" })).status).toBe(404);
  expect((await get(at.replace("/callback", "/elsewhere?state=right&code=c"))).status).toBe(404);

  const page = get(`${at}?state=right&code=canary-code&iss=https%3A%2F%2Fas.example&session_state=x`);
  const { callback, tell } = await answered;
  expect(callback).toEqual({ state: "right", code: "canary-code", iss: "https://as.example" });
  // A second answer, while the first one is worked on, is nobody's.
  expect((await get(`${at}?state=right&code=other`)).status).toBe(400);
  tell(true);
  const { status, headers, text } = await page;
  expect(status).toBe(200);
  expect(headers).toMatchObject({
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "content-security-policy": expect.stringContaining("default-src 'none'"),
  });
  expect(text).toContain("Connected.");
  expect(text).not.toContain("canary-code");
});

test("the browser is opened at an address that holds nothing and works once", async () => {
  const loopback = await open();
  const to = "https://as.example/authorize?state=canary-state";
  const launch = loopback.launchUrl(to);
  expect(launch).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/[\w-]{32}$/);
  const first = await get(launch);
  expect([first.status, first.headers.location]).toEqual([302, to]);
  expect((await get(launch)).status).toBe(404);
});

test("nobody waits longer than the authorization lasts", async () => {
  const loopback = await open();
  await expect(loopback.answer("right", AbortSignal.timeout(20))).rejects.toThrow();
  expect((await get(`${loopback.redirectUri}?state=right&code=c`)).status).toBe(400);
});

test("the words of the command", () => {
  const plain = { server: "https://s.example/mcp", vault: null, scope: null, clientId: null, clientSecretFile: null, port: 0, opensBrowser: true };
  expect(readWords(["https://s.example/mcp"])).toEqual(plain);
  const all = ["--vault", "vlt_1", "--scope", "a b", "--client-id", "c", "--client-secret-file", "f", "--port", "41000", "--no-browser"];
  expect(readWords([...all, "https://s.example/mcp"])).toEqual({
    ...plain,
    vault: "vlt_1",
    scope: "a b",
    clientId: "c",
    clientSecretFile: "f",
    port: 41_000,
    opensBrowser: false,
  });
  for (const bad of [
    [],
    ["mcp"],
    ["https://a.example", "https://b.example"],
    ["https://a.example", "--port", "x"],
    ["https://a.example", "--secret", "x"],
  ])
    expect(readWords(bad)).toEqual(expect.any(String));
  expect(readWords(["https://a.example", "--client-secret-file", "f"])).toBe("--client-secret-file needs --client-id");
});
