// What a log says of a session's repositories, what a model is told of them, and by which grant a hand reaches them.

import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import type { MintGrant } from "../../harnesses/grant.ts";
import { KnownRepositories, withRepositories } from "../../harnesses/known-repositories.ts";
import { LogView } from "../../harnesses/view.ts";
import { LeaseWayOut } from "../../harnesses/way-out.ts";
import type { Lease } from "../../session-store/due.ts";
import type { LogCreated, SessionResource } from "../../session-store/events/log.ts";
import { type Fence, mintEvent, mintSession } from "../../session-store/ids.ts";
import { agent, TOOLSET } from "./agents.ts";
import { TestLog } from "./logs.ts";

const repository = (name: string, updated_at = "2026-01-01T00:00:00.000Z"): SessionResource => ({
  id: `sesrsc_${name}`,
  type: "github_repository",
  url: `https://github.com/acme/${name}`,
  mount_path: `/workspace/${name}`,
  checkout: null,
  created_at: "2026-01-01T00:00:00.000Z",
  updated_at,
});

/** A log whose session has these repositories. */
function logWith(...resources: readonly SessionResource[]): TestLog {
  const log = new TestLog();
  const [created] = log.stored;
  if (created === undefined) throw new Error("an empty log");
  log.stored[0] = { ...created, entry: { ...(created.entry as LogCreated), resources } };
  return log;
}
function known(log: TestLog): KnownRepositories {
  const all = new KnownRepositories();
  for (const stored of log.stored) all.take(stored);
  return all;
}

test("a hand is asked once for each repository, another hand anew, and a failed one again when its token was changed, or in another turn", () => {
  const log = logWith(repository("a"), repository("b"));
  const missing = (hand: string) =>
    known(log)
      .missingIn(hand)
      .map(({ id }) => id);
  expect(missing("hand_1")).toEqual(["sesrsc_a", "sesrsc_b"]);
  log.add({ type: "log.repositories", hand: "hand_1", failed: ["sesrsc_b"] });
  expect([missing("hand_1"), missing("hand_2")]).toEqual([[], ["sesrsc_a", "sesrsc_b"]]);
  // The token of one that is there changes nothing.
  log.add({ type: "log.resources", id: mintEvent(), resources: [repository("a", "2026-01-02T00:00:00.000Z"), repository("b")] });
  expect(missing("hand_1")).toEqual([]);
  const changed = [repository("a", "2026-01-02T00:00:00.000Z"), repository("b", "2026-01-03T00:00:00.000Z")];
  log.add({ type: "log.resources", id: mintEvent(), resources: changed });
  expect(missing("hand_1")).toEqual(["sesrsc_b"]);
  log.add({ type: "log.repositories", hand: "hand_1", failed: ["sesrsc_b"] });
  expect([missing("hand_1"), known(log).failedIn("hand_1"), known(log).failedIn("hand_2")]).toEqual([[], ["sesrsc_b"], []]);
  log.add({ id: mintEvent(), type: "session.status_running" });
  expect(missing("hand_1")).toEqual(["sesrsc_b"]);
});

test("what failed as it did before is no news, unless it failed in another way or with another token", () => {
  const log = logWith(repository("a"));
  const { url } = repository("a");
  const isNews = (message: string) => known(log).isNews("sesrsc_a", url, message);
  expect(isNews("m")).toBe(true);
  const error = { type: "repository_clone_error", message: "m", repository_url: url, retry_status: { type: "retrying" } } as const;
  log.add({ id: mintEvent(), type: "session.error", error }, { type: "log.repositories", hand: "hand_1", failed: ["sesrsc_a"] });
  expect([isNews("m"), isNews("other")]).toEqual([false, true]);
  log.add({ type: "log.resources", id: mintEvent(), resources: [repository("a", "2026-01-02T00:00:00.000Z")] });
  expect(isNews("m")).toBe(true);
});

test("an error of a repository is no failed attempt of the turn", () => {
  const view = new LogView();
  const error = { type: "repository_clone_error", message: "m", repository_url: null, retry_status: { type: "retrying" } } as const;
  const other = { type: "model_overloaded_error", message: "m", retry_status: { type: "retrying" } } as const;
  view.fold(logWith().add({ id: mintEvent(), type: "session.error", error }, { id: mintEvent(), type: "session.error", error: other }).stored);
  expect(view.failures).toBe(1);
});

test("a model is told where repositories are, after its agent's own words and only if there are any", () => {
  const branch = { ...repository("b"), checkout: { type: "branch", name: "topic" } as const };
  expect([withRepositories("own", []), withRepositories(null, [])]).toEqual(["own", null]);
  expect(withRepositories("own", [repository("a"), branch])).toMatch(
    /^own\n\nRepositories .*:\n- https:\/\/github\.com\/acme\/a in \/workspace\/a\n- .*\/b in \/workspace\/b, branch topic\ngit fetch/s,
  );
  expect(withRepositories(null, [branch])).toMatch(/^Repositories/);
});

test.each([
  [{ type: "limited", allowed_hosts: [], allow_mcp_servers: false, allow_package_managers: false }, 0, null, null],
  [
    { type: "limited", allowed_hosts: [], allow_mcp_servers: false, allow_package_managers: false },
    1,
    ["git"],
    { type: "limited", hosts: [], package_managers: false },
  ],
  [
    { type: "limited", allowed_hosts: ["a.example"], allow_mcp_servers: false, allow_package_managers: false },
    1,
    ["egress", "git"],
    { type: "limited", hosts: ["a.example"], package_managers: false },
  ],
  [{ type: "unrestricted" }, 0, ["egress"], { type: "unrestricted" }],
  [{ type: "unrestricted" }, 1, ["egress", "git"], { type: "unrestricted" }],
])("with networking %j and %i repositories a hand's grant is for %j", async (networking, count, use, network) => {
  const log = logWith(...(count > 0 ? [repository("a")] : []));
  const view = new LogView();
  view.fold(log.stored);
  const minted: Parameters<MintGrant>[0][] = [];
  const mintGrant: MintGrant = (claims) => {
    minted.push(claims);
    return { text: Promise.resolve("a.b.c"), lifeMs: 1 };
  };
  const store = { get: async () => ({ body: { environment: { config: { networking } } } }) } as never;
  const lease = { id: mintSession(), fence: 1 as Fence } as Lease;
  const wayOut = await new LeaseWayOut({ store, lease, mintGrant }, () => view).current();
  expect(wayOut && JSON.parse(wayOut.network)).toEqual(network ?? undefined);
  expect(minted.map((claims) => claims.use)).toEqual(use === null ? [] : [use]);
  if (wayOut) expect(minted[0]?.network).toBe(createHash("sha256").update(wayOut.network).digest("base64url"));
  expect(view.agent).toEqual(agent([TOOLSET]));
});
