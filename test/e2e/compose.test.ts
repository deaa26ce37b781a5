// docker-compose.yml and Dockerfile: what they promise, and a turn through the published port that outlives its worker.

import { chmod, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { mint } from "../../session-store/ids.ts";
import { type ComposeFile, ComposeProject, readCompose } from "../support/compose.ts";
import { BASE_IMAGE, buildBase, buildProduct, PRODUCT_IMAGE } from "../support/local-images.ts";
import { type ScriptedModel, startModel } from "../support/model/server.ts";
import { needs } from "../support/real-part.ts";
import { until } from "../support/until.ts";

const BUILD_MS = 900_000;
const TURN_MS = 120_000;
const PROGRAMS = ["vault-proxy", "hands", "worker", "gateway"] as const;

describe("docker-compose.yml", () => {
  let file: ComposeFile;
  beforeAll(async () => {
    file = await readCompose();
  });
  const service = (name: string) => {
    const found = file.services[name];
    if (!found) throw new Error(`There is no service ${name}.`);
    return found;
  };

  test("publishes the gateway's port alone, on the loopback address", () => {
    const published = Object.entries(file.services).flatMap(([name, { ports }]) => ports.map((port) => [name, port]));
    expect(published).toEqual([["gateway", "127.0.0.1:4100:4100"]]);
  });

  test("gives each program the keys that it needs as files, and none in its environment", () => {
    expect(Object.fromEntries(PROGRAMS.map((name) => [name, service(name).secrets]))).toEqual({
      "vault-proxy": ["grant.public.jwk", "model.key"],
      hands: ["hand.key"],
      worker: ["hand.key", "grant.private.jwk", "grant.public.jwk"],
      gateway: ["api.key", "hand.key", "grant.private.jwk", "grant.public.jwk"],
    });
    const names = Object.values(file.services).flatMap(({ environment }) => Object.keys(environment));
    expect(names.filter((name) => /KEY$|SECRET|TOKEN|PASSWORD/.test(name) && !name.endsWith("_FILE"))).toEqual([]);
  });

  test("has Redis sync each write to a volume before it answers", () => {
    const { command, volumes } = service("redis");
    const settings = command.join(" ");
    expect(settings).toContain("--appendonly yes");
    expect(settings).toContain("--appendfsync always");
    expect(volumes).toEqual(["redis:/data"]);
  });

  test("runs every program as an ordinary user, without capabilities, on a root that can't be written, under an init", () => {
    for (const name of PROGRAMS)
      expect(service(name)).toMatchObject({
        user: "1000:1000",
        cap_drop: ["ALL"],
        read_only: true,
        init: true,
        security_opt: ["no-new-privileges:true"],
      });
  });

  test("lets only gateway and vault proxy out, and asks all that listen whether they are well", () => {
    expect(file.networks).toEqual({ inside: { internal: true }, vaults: { internal: true }, outside: null });
    const out = Object.entries(file.services).filter(([, { networks }]) => networks.includes("outside"));
    expect(out.map(([name]) => name)).toEqual(["vault-proxy", "gateway"]);
    for (const name of ["redis", "vault-proxy", "hands", "gateway", "openbao"]) expect(service(name).healthcheck).toBeDefined();
  });
});

needs("docker", "redis-server")("the containers of docker-compose.yml", () => {
  let model: ScriptedModel;
  let project: ComposeProject;
  let client: Anthropic;

  beforeAll(async () => {
    await buildBase();
    await buildProduct();
    model = await startModel({ host: "0.0.0.0" });
    const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
    project = await ComposeProject.make(await readCompose(uid === 0 ? {} : { MANYHANDS_USER: `${uid}:${gid}` }), {
      manyhands: PRODUCT_IMAGE,
      "redis:7-bookworm": BASE_IMAGE,
    });
    const secrets = join(project.folder, "secrets");
    await mkdir(secrets);
    await writeFile(join(secrets, "model.key"), "the-scripted-model-takes-any-key\n");
    await chmod(project.folder, 0o755);
    await chmod(secrets, 0o777);
    await chmod(join(secrets, "model.key"), 0o644);

    const { StatusCode } = await (await project.up("keys")).wait();
    expect({ StatusCode, says: StatusCode === 0 ? "" : await project.logs("keys") }).toEqual({ StatusCode: 0, says: "" });
    expect((await readdir(secrets)).toSorted()).toEqual(["api.key", "grant.private.jwk", "grant.public.jwk", "hand.key", "model.key"]);

    const { environment } = project.file.services["vault-proxy"] ?? { environment: {} };
    const url = `http://${await project.addressOfHost("outside")}:${new URL(model.url).port}`;
    await project.up("redis");
    await project.up("vault-proxy", { overrides: { environment: { ...environment, ANTHROPIC_BASE_URL: url } } });
    await project.up("hands");
    await project.up("worker");
    await project.up("gateway", { overrides: { ports: ["127.0.0.1:0:4100"] } });
    await project.healthy("gateway");
    const apiKey = (await readFile(join(secrets, "api.key"), "utf8")).trim();
    client = new Anthropic({ apiKey, baseURL: `http://127.0.0.1:${await project.published("gateway", 4100)}` });
  }, BUILD_MS);
  afterAll(async () => {
    await project?.down();
    await model?.close();
  }, TURN_MS);

  async function open(): Promise<string> {
    const agent = await client.beta.agents.create({ name: "Ada", model: "scripted-model", tools: [{ type: "agent_toolset_20260401" }] });
    const environment = await client.beta.environments.create({ name: `home ${mint("e2e")}` });
    return (await client.beta.sessions.create({ agent: agent.id, environment_id: environment.id })).id;
  }

  async function typesOf(session: string): Promise<readonly string[]> {
    const types: string[] = [];
    for await (const { type } of client.beta.sessions.events.list(session)) types.push(type);
    return types;
  }

  async function turn(session: string, text: string, during: () => Promise<void> = async () => {}): Promise<readonly { type: string }[]> {
    const stream = await client.beta.sessions.events.stream(session);
    await client.beta.sessions.events.send(session, { events: [{ type: "user.message", content: [{ type: "text", text }] }] });
    const meanwhile = during();
    const seen: { type: string }[] = [];
    for await (const event of stream) {
      seen.push(event);
      if (event.type === "session.status_idle") break;
    }
    stream.controller.abort();
    await meanwhile;
    return seen;
  }

  test(
    "take a turn with a tool through the published port, by the official SDK",
    async () => {
      const seen = await turn(await open(), 'call bash: {"command":"echo from the sandbox"}\nsay: all done');
      expect(JSON.stringify(seen)).toContain("from the sandbox");
      expect(seen.filter(({ type }) => type === "agent.message")).toHaveLength(1);
      expect(JSON.stringify(seen)).toContain("all done");
    },
    TURN_MS,
  );

  test(
    "go on when the worker that has the session is killed in the middle of a turn",
    async () => {
      const session = await open();
      const seen = await turn(session, 'call bash: {"command":"sleep 8; echo slept"}\nsay: survived', async () => {
        await until(async () => (await typesOf(session)).includes("agent.tool_use"), {
          timeoutMs: TURN_MS,
          pollMs: 200,
          what: "the tool to be called",
        });
        // Only now there is another one: the one that dies has the session.
        await project.up("worker", { replica: 2 });
        await project.container("worker", 1).kill({ signal: "SIGKILL" });
      });
      expect(JSON.stringify(seen)).toContain("survived");
      expect(seen.filter(({ type }) => type === "agent.tool_use")).toHaveLength(1);
      expect(seen.filter(({ type }) => type === "agent.tool_result")).toHaveLength(1);
    },
    TURN_MS,
  );
});
