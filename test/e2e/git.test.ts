// Repositories in real turns: a real git server with a private repository, real containers, the official SDK.

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { mint } from "../../session-store/ids.ts";
import { engine } from "../support/docker.ts";
import { type GitServer, startGitServer } from "../support/git-server.ts";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { until } from "../support/until.ts";
import { bash, ContainerStage } from "./cases/containers.ts";
import { type CaseSession, errorsOf, TOOLSET } from "./cases/stage.ts";

const TURN_MS = 90_000;
const TOKEN = `ghp_canary${mint("t").slice(2)}`;
const PRIVATE = "acme/private";
const PUBLIC = "acme/public";

type Resource = Extract<NonNullable<Anthropic.Beta.SessionCreateParams["resources"]>[number], { type: "github_repository" }>;

needs("docker")("repositories in containers", () => {
  let server: GitServer;
  let contained: ContainerStage;
  const client = () => contained.stage.client;
  beforeAll(async () => {
    server = await startGitServer();
    await server.add(PRIVATE, { "README.md": "private words\n" }, TOKEN);
    await server.add(PUBLIC, { "README.md": "public words\n" }, null);
    await server.add("acme/topics", { "README.md": "topics\n" }, null);
    await server.git("acme/topics", "branch", "topic/one", "main");
    contained = await ContainerStage.open(undefined, { MANYHANDS_GIT_HOSTS: server.url });
  });
  afterAll(async () => {
    await contained.close();
    await server.close();
  });

  async function open(resources: Resource[], networking: object = { type: "limited" }): Promise<CaseSession> {
    const { agents, environments, sessions } = client().beta;
    const agent = await agents.create({ name: "Git", model: "scripted-model", tools: [TOOLSET] });
    const environment = await environments.create({ name: mint("case"), config: { type: "cloud", networking } as never });
    const { id } = await sessions.create({ agent: agent.id, environment_id: environment.id, resources });
    return contained.stage.known(id);
  }
  const run = (session: CaseSession, command: string) => session.turn(`${bash(command)}\necho: `, TURN_MS);
  const repository = (path: string, token?: string): Resource => ({
    type: "github_repository",
    url: `${server.url}/${path}`,
    ...(token === undefined ? {} : { authorization_token: token }),
  });

  proves(
    "git:no-token",
    "a hand clones, commits, pushes and pulls a private repository, and the token is nowhere in it",
    async () => {
      const session = await open([repository(PRIVATE, TOKEN), repository(PUBLIC)]);
      const seen = await run(session, "cat private/README.md public/README.md; git -C private status -sb; git -C private remote -v");
      expect(seen).toContain("private words\npublic words\n## main...origin/main\norigin\thttp://127.0.0.1:");
      const pushed = await run(
        session,
        "cd private && head -c 3000000 /dev/urandom > more && git add more && git commit -qm 'from the hand' && git push -q && echo ok",
      );
      expect(pushed).toContain("ok");
      expect((await server.git(PRIVATE, "log", "--format=%s", "main")).split("\n").slice(0, 2)).toEqual(["from the hand", "first"]);
      expect(await server.git(PRIVATE, "log", "-1", "--format=%an <%ae>", "main")).toContain("Agent <agent@manyhands.invalid>");
      await server.commit(PRIVATE, "theirs", "their words\n");
      const traced = await run(
        session,
        "cd /workspace/private && GIT_TRACE_CURL=1 git pull -q 2>../trace; cat theirs; grep -ci authorization ../trace; grep -c 'GET /git/' ../trace",
      );
      expect(traced).toMatch(/their words\n0\n[1-9]/);

      // What a hand could see: its processes' environments and arguments, its files, and everything that was said of it.
      const processes = await run(session, "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | base64 -w0");
      const shown = [
        Buffer.from(processes.trim(), "base64").toString("latin1"),
        ...(await textsIn(contained.stage.installation.dataDir)),
        JSON.stringify(await session.events()),
        JSON.stringify(await client().beta.sessions.retrieve(session.id)),
        JSON.stringify(session.requests()),
        ...contained.stage.installation.past.map(({ lines, stderr }) => JSON.stringify(lines) + stderr),
      ];
      expect(shown[0]).toContain("http_proxy=");
      expect(shown.some((text) => text.includes("from the hand"))).toBe(true);
      for (const text of shown) for (const form of formsOf(TOKEN)) expect(text.includes(form)).toBe(false);
    },
    TURN_MS,
  );

  test(
    "from inside, git's way leads to the session's repositories alone",
    async () => {
      const session = await open([repository(PUBLIC)]);
      const before = server.came.length;
      const host = new URL(server.url).host;
      const said = await run(
        session,
        [
          "cd public; door=http://127.0.0.1:3128",
          `git ls-remote $door/git/${host}/${PRIVATE} 2>&1`,
          `for path in git/${host}/${PUBLIC}/../private git/${host}/acme%2fprivate ${host}/${PRIVATE} git/${host}/${PUBLIC}/objects/info/packs; do`,
          `  curl -s -o /dev/null -w '%{http_code} ' --path-as-is "$door/$path/info/refs?service=git-upload-pack"; done`,
          `curl -s -o /dev/null -w '%{http_code} ' --noproxy '' -x $door ${server.url}/${PUBLIC}/info/refs?service=git-upload-pack`,
          "git push origin HEAD:refs/heads/x 2>&1",
        ].join("\n"),
      );
      expect(said).toContain("[repository_not_found_error]");
      expect(said).toContain("404 404 400 404 403 ");
      // A public repository is read without a token, and not written.
      expect(said).toContain("[repository_authentication_error]");
      const asked = server.came.slice(before).map(({ url }) => url.split("?")[0]);
      expect(new Set(asked)).toEqual(new Set([`/${PUBLIC}/info/refs`, `/${PUBLIC}/git-upload-pack`]));
    },
    TURN_MS,
  );

  test(
    "what can't be cloned is a session error each, the turn goes on, and is tried again, with a new token too",
    async () => {
      const session = await open([
        repository(PRIVATE, "ghp_wrong"),
        repository("acme/gone", TOKEN),
        { ...repository(PUBLIC), mount_path: "/workspace/a b/it's", checkout: { type: "branch", name: "nowhere" } },
        { ...repository("acme/topics"), checkout: { type: "branch", name: "topic/one" } },
      ]);
      const said = await run(session, "ls -A; git -C topics status -sb");
      expect(said).toContain("## topic/one...origin/topic/one");
      const events = await session.events();
      expect(errorsOf(events).map(({ type, retry }) => [type, retry])).toEqual([
        ["repository_authentication_error", "retrying"],
        ["repository_not_found_error", "retrying"],
        ["repository_checkout_error", "retrying"],
      ]);
      expect(events.flatMap((event) => (event.type === "session.error" ? [(event.error as { repository_url: string }).repository_url] : []))).toEqual(
        [PRIVATE, "acme/gone", PUBLIC].map((path) => `${server.url}/${path}`),
      );
      // The model was asked before anything was cloned, and was told where things are.
      const types = events.map(({ type }) => type);
      expect(types.indexOf("session.error")).toBeGreaterThan(types.indexOf("agent.tool_use"));
      expect(types.indexOf("session.error")).toBeLessThan(types.indexOf("agent.tool_result"));
      expect(JSON.stringify(session.requests()[0]?.body.system)).toContain(`${server.url}/acme/topics in /workspace/topics, branch topic/one`);

      // Tried once more in another turn, and told once.
      const asked = server.came.length;
      expect(await run(session, "ls -A private 2>&1")).toContain("No such file");
      expect(server.came.length).toBeGreaterThan(asked);
      expect(errorsOf(await session.events())).toHaveLength(3);
      const { resources } = await client().beta.sessions.retrieve(session.id);
      const [first] = resources.flatMap((each) => ("id" in each ? [each.id] : []));
      await client().beta.sessions.resources.update(first ?? "", { session_id: session.id, authorization_token: TOKEN });
      expect(await run(session, "cat private/README.md")).toContain("private words");
      expect(errorsOf(await session.events())).toHaveLength(3);
    },
    TURN_MS,
  );

  test(
    "a container that died has its repositories as they were, and they are not cloned again",
    async () => {
      const session = await open([repository(PRIVATE, TOKEN)], { type: "unrestricted" });
      await run(session, "echo changed >> private/README.md");
      const cloned = server.came.length;
      const { id } = await contained.containerOf(session);
      await engine.getContainer(id).remove({ force: true });
      const said = await run(session, "cat private/README.md; git -C private status -s");
      expect(said).toContain("shell restarted; files kept\nprivate words");
      expect(said).toContain(" M README.md");
      expect(server.came.length).toBe(cloned);
      expect(await run(session, "git -C private fetch && echo fetched")).toContain("fetched");
    },
    TURN_MS,
  );

  test.each(["node", "hands"] as const)(
    "when the %s dies while a hand clones, the session goes on and has its repository, whole",
    async (role) => {
      const session = await open([repository(PRIVATE, TOKEN)]);
      const cloned = server.came.length;
      let release = () => {};
      const gate = new Promise<void>((resolve) => {
        release = resolve;
      });
      server.before = async () => {
        await gate;
        return false;
      };
      await session.say(`${bash("cat private/README.md; git -C private status -s; ls -A .manyhands")}\necho: `);
      await until(() => server.came.length > cloned, { timeoutMs: TURN_MS, what: "the clone" });
      await contained.stage.restart(role);
      release();
      server.before = () => false;
      await session.rested(TURN_MS);
      const said = (await session.lastWords()).split("\n");
      expect(said.slice(said.indexOf("private words"))).toEqual(["private words"]);
      // A hand goes on with what its host was asked for before the worker died; what ran under a host that died is begun anew.
      expect(server.came.slice(cloned).filter(({ url }) => url.includes("info/refs"))).toHaveLength(role === "node" ? 1 : 2);
      expect(await session.eventsOf("session.error")).toEqual([]);
    },
    TURN_MS,
  );
});

/** Every file below a folder, as text of bytes. */
async function textsIn(folder: string): Promise<readonly string[]> {
  const files = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((each) => each.isFile());
  return await Promise.all(files.map((each) => readFile(join(each.parentPath, each.name), "latin1")));
}

/** The token as it is, and as it goes over the wire. */
const formsOf = (token: string): readonly string[] => [token, Buffer.from(`x-access-token:${token}`).toString("base64").slice(22, -2), "sealed_"];
