// Repositories in real turns: a real git server with a private repository, real containers, the official SDK.

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { mint } from "../../session-store/ids.ts";
import { type GitServer, startGitServer } from "../support/git-server.ts";
import { needs } from "../support/real-part.ts";
import { bash, ContainerStage } from "./cases/containers.ts";
import { type CaseSession, TOOLSET } from "./cases/stage.ts";

const TURN_MS = 90_000;
const TOKEN = `ghp_canary${mint("t").slice(2)}`;
const PRIVATE = "acme/private";
const PUBLIC = "acme/public";

type Resource = NonNullable<Anthropic.Beta.SessionCreateParams["resources"]>[number];

needs("docker")("repositories in containers", () => {
  let server: GitServer;
  let contained: ContainerStage;
  const client = () => contained.stage.client;
  beforeAll(async () => {
    server = await startGitServer();
    await server.add(PRIVATE, { "README.md": "private words\n" }, TOKEN);
    await server.git(PRIVATE, "branch", "topic", "main");
    await server.add(PUBLIC, { "README.md": "public words\n" }, null);
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

  test(
    "a hand clones, commits, pushes and pulls a private repository, and the token is nowhere in it",
    async () => {
      const session = await open([repository(PRIVATE, TOKEN), repository(PUBLIC)]);
      const said = await run(session, "cat private/README.md public/README.md; git -C private remote -v; git -C private status -sb");
      expect(said).toContain("private words\npublic words");
      expect(said).toContain("## main...origin/main");
    },
    TURN_MS,
  );
});
