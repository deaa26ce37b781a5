// A session's credential, from the API's vault to a program in a container: the program has a placeholder, the credential's own host gets the value, and
// the log gets neither the value nor what the host says back of it. A host that the environment does not name is not reached.
//
// TencentCloud/CubeSandbox#1410, omnigent-ai/omnigent#3029, getsentry/junior#338, opensandbox-group/OpenSandbox#955

import { afterAll, beforeAll, expect } from "vitest";
import { mint } from "../../../session-store/ids.ts";
import { proves } from "../../support/proves.ts";
import { needs } from "../../support/real-part.ts";
import { type Host, startHost } from "../../vault-proxy/egress-kit.ts";
import { bash, ContainerStage } from "./containers.ts";
import { TOOLSET } from "./stage.ts";

const SECRET = "canary-5e0c/71+key";
const CASE_MS = 120_000;

needs("docker")("a session with a vault and a limited network", () => {
  let contained: ContainerStage;
  let own: Host;
  let other: Host;
  const came: string[] = [];
  beforeAll(async () => {
    own = await startHost((req, res) => {
      came.push(String(req.headers.authorization));
      res.end(`you sent ${req.headers.authorization}`);
    });
    other = await startHost((_req, res) => void res.end("reached"));
    contained = await ContainerStage.open(undefined, { MANYHANDS_EGRESS_INTERNAL_HOSTS: `127.0.0.1:${own.port},127.0.0.1:${other.port}` });
  }, CASE_MS);
  afterAll(async () => {
    await contained.close();
    await own.close();
    await other.close();
  });

  proves(
    "egress:placeholder",
    "its own host gets the value, nobody else sees it",
    async () => {
      const { client } = contained.stage;
      const vault = await client.beta.vaults.create({ display_name: "Case" });
      await client.beta.vaults.credentials.create(vault.id, {
        auth: {
          type: "environment_variable",
          secret_name: "API_TOKEN",
          secret_value: SECRET,
          networking: { type: "limited", allowed_hosts: ["127.0.0.1"] },
        },
      });
      const agent = await client.beta.agents.create({ name: "Case", model: "scripted-model", tools: [TOOLSET] });
      const networking = { type: "limited" as const, allowed_hosts: [`127.0.0.1:${own.port}`] };
      const environment = await client.beta.environments.create({ name: mint("case"), config: { type: "cloud", networking } });
      const { id } = await client.beta.sessions.create({ agent: agent.id, environment_id: environment.id, vault_ids: [vault.id] });
      const session = contained.stage.known(id);
      const ask = (port: number) =>
        `no_proxy= NO_PROXY= python3 -c "import os, urllib.request as u; print(u.urlopen(u.Request('http://127.0.0.1:${port}/', headers={'authorization': os.environ['API_TOKEN']})).read().decode())" 2>&1 | tail -1; echo $API_TOKEN`;
      await session.turn(`${bash(ask(own.port))}\n---\n${bash(ask(other.port))}\n---\nsay: done`, CASE_MS);
      const [first, second] = await session.results();
      expect(came).toEqual([SECRET]);
      expect(first?.text).toMatch(/^you sent \*{18}\nmhenv_[0-9a-f]{32}$/);
      expect(second?.text).toMatch(/HTTP Error 403: the environment's networking does not allow this host and port/);
      expect(other.seen).toEqual([]);
      expect(JSON.stringify(await session.events())).not.toContain(SECRET);
    },
    CASE_MS,
  );
});
