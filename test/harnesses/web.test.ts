// The web tools without a provider (harnesses/web.ts): where a call may go, and to which agents they are offered.

import { describe, expect, test } from "vitest";
import { toolsOf } from "../../harnesses/tools.ts";
import { refuseWeb } from "../../harnesses/web.ts";
import type { AgentTool, WebSettings } from "../../session-store/events/log.ts";
import { agent, TOOLSET } from "./agents.ts";

const POLICY = { enabled: true, permission_policy: { type: "always_allow" } } as const;
const web = (name: string, settings: WebSettings & { readonly enabled?: boolean } = {}): AgentTool => ({
  ...TOOLSET,
  configs: [{ ...POLICY, name, ...settings }],
});
const fetched = (url: unknown, settings: WebSettings = {}) =>
  refuseWeb(agent([web("web_fetch", settings)]), { name: "web_fetch", input: { url } }).split(":")[0];

describe("a call", () => {
  test.each([
    ["https://example.com/a", "unavailable"],
    ["https://docs.example.com", "unavailable"],
    ["http://EXAMPLE.com:8080/", "unavailable"],
    ["https://example.com./a", "unavailable"],
    ["https://notexample.com", "url_not_allowed"],
    ["https://example.com.evil.test", "url_not_allowed"],
    ["https://example.com@evil.test/", "url_not_allowed"],
    ["http://127.0.0.1/", "url_not_allowed"],
  ])("to %s is %s where example.com alone is allowed, and the reverse where it is blocked", (url, code) => {
    expect(fetched(url, { allowed_domains: ["Example.com"] })).toBe(code);
    expect(fetched(url, { blocked_domains: ["example.com"] })).toBe(code === "unavailable" ? "url_not_allowed" : "unavailable");
    expect(fetched(url)).toBe("unavailable");
  });

  test("compares other scripts as they are written in a URL", () => {
    expect(fetched("https://bücher.example/", { blocked_domains: ["xn--bcher-kva.example"] })).toBe("url_not_allowed");
  });

  test("without an address, or with one that is none, is said so", () => {
    for (const url of [undefined, 7, "", "example.com", "file:///etc/passwd", "javascript:1"]) expect(fetched(url)).toBe("invalid_input");
    expect(fetched(`https://example.com/${"x".repeat(2_048)}`)).toBe("url_too_long");
  });

  test("of a search names the provider that is missing", () => {
    const asked = (input: unknown) => refuseWeb(agent([web("web_search")]), { name: "web_search", input });
    expect(asked({ query: "x" })).toBe("unavailable: no provider of web_search is configured on this server.");
    expect(asked({})).toBe("invalid_input: give a query.");
  });
});

test("they are offered where they are named and enabled, behind the tools of a hand, and to nobody else", () => {
  const namesOf = (tool: AgentTool) => toolsOf(agent([tool])).map(({ name }) => name);
  const usual = namesOf(TOOLSET);
  expect(usual).not.toContain("web_fetch");
  expect(namesOf(web("web_fetch"))).toEqual([...usual, "web_fetch"]);
  expect(namesOf(web("web_search", { enabled: false }))).toEqual(usual);
});
