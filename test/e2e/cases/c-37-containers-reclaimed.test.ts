// In the end exactly the containers, folders and volumes of live sessions are there: after the hand host was killed with sandboxes up, while the engine
// answers errors, when a create fails after the container exists, and when its name is taken by what a crash left. One call never starts two.
//
// traceroot-ai/traceroot#2101, electric-sql/electric#4513, agent-of-empires/agent-of-empires#2576, GNS3/gns3-server#2619, NousResearch/hermes-agent#44114,
// docker/mcp-gateway#318

import { readdir } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { nameOf } from "../../../hands/docker/container.ts";
import { type EngineDoor, engine, openEngineDoor } from "../../support/docker.ts";
import { proves } from "../../support/proves.ts";
import { needs } from "../../support/real-part.ts";
import { until } from "../../support/until.ts";
import { bash, ContainerStage } from "./containers.ts";
import { type CaseSession, TOOLSET } from "./stage.ts";

const TROUBLE_MS = 20_000;
/** Sessions that are gone are looked for every thirty seconds, and removals that failed every two. */
const CLEAN_MS = 60_000;

needs("docker")("in containers", () => {
  let door: EngineDoor;
  let contained: ContainerStage;
  const live: CaseSession[] = [];
  beforeAll(async () => {
    door = await openEngineDoor();
    contained = await ContainerStage.open(door.socketPath);
  });
  afterAll(async () => {
    await contained.close();
    await door.close();
  });

  const withFile = async (): Promise<CaseSession> => {
    const session = await contained.stage.session([TOOLSET]);
    await session.turn(`${bash(`echo ${session.nonce} > mine`)}\n---\nsay: done`);
    return session;
  };
  const readsItsFile = async (session: CaseSession) => expect(await session.turn(`${bash("cat mine")}\necho: `)).toContain(session.nonce);
  const remove = (session: CaseSession) => contained.stage.client.beta.sessions.delete(session.id);

  /** The engine and the disk show these sessions and nothing else. */
  async function expectExactly(sessions: readonly CaseSession[]): Promise<void> {
    const wanted = sessions.map(({ id }) => id).sort();
    let seen = "";
    await until(
      async () => {
        const containers = await contained.containers();
        const folders = (await readdir(contained.folder)).sort();
        seen = JSON.stringify({ containers, folders });
        return (
          containers
            .map(({ session }) => session)
            .sort()
            .join() === wanted.join() &&
          containers.every(({ state }) => state === "running") &&
          folders.join() ===
            containers
              .map(({ hand }) => hand)
              .sort()
              .join()
        );
      },
      { timeoutMs: CLEAN_MS, pollMs: 500, what: () => `exactly ${wanted.join()}: ${seen}` },
    );
    for (const { id } of await contained.containers()) {
      const { Mounts } = await engine.getContainer(id).inspect();
      expect(Mounts.filter(({ Type }) => Type !== "bind")).toEqual([]);
    }
  }

  proves(
    "hand:reclaimed",
    "the hand host is killed with five sandboxes, and the engine refuses to remove while three sessions are deleted",
    async () => {
      const all = await Promise.all([1, 2, 3, 4, 5].map(withFile));
      await expectExactly(all);
      const before = await contained.containers();
      await contained.stage.installation.kill("hands");
      const troubleEnds = Date.now() + TROUBLE_MS;
      door.decide = (method) => (method === "DELETE" && Date.now() < troubleEnds ? "refuse" : "pass");
      await Promise.all(all.slice(2).map(remove));
      await contained.stage.installation.startMissing();
      live.push(...all.slice(0, 2));
      await expectExactly(live);
      expect(Date.now()).toBeGreaterThan(troubleEnds);
      for (const session of live) await readsItsFile(session);
      // Attached again, not made again.
      for (const { id } of await contained.containers()) expect(before.map((each) => each.id)).toContain(id);
    },
  );

  test("a create that fails after the container exists, and can't be cleaned up at once: the call says so, the next one frees the name", async () => {
    const session = await contained.stage.session([TOOLSET]);
    door.decide = (method, path) => {
      if (method === "DELETE") return "refuse";
      return method === "POST" && path === "/containers/create" ? "fail-after" : "pass";
    };
    await session.turn(`${bash("true")}\n---\nsay: done`);
    expect(await session.results()).toEqual([{ text: expect.stringContaining("could not be started"), isError: true }]);
    const [leftover] = (await contained.containers()).filter((each) => each.session === session.id);
    expect(leftover?.state).toBe("created");
    door.decide = () => "pass";
    await session.turn(`${bash(`echo ${session.nonce} > mine`)}\n---\nsay: done`);
    await readsItsFile(session);
    live.push(session);
    await expectExactly(live);
    expect((await contained.containerOf(session)).id).not.toBe(leftover?.id);
    expect((await engine.getContainer(nameOf(leftover?.hand ?? "")).inspect()).Id).toBe((await contained.containerOf(session)).id);
  });

  test("calls side by side, the first of their session: one container is made", async () => {
    const session = await contained.stage.session([TOOLSET]);
    const creates = () => door.seen.filter((each) => each === "POST /containers/create").length;
    const before = creates();
    await session.turn(`${Array.from({ length: 6 }, () => 'call read: {"file_path":"mine"}').join("\n")}\n${bash("true")}\n---\nsay: done`);
    expect(creates()).toBe(before + 1);
    live.push(session);
    await expectExactly(live);
  });

  test("killed while a container is on its way: no more than one of each session, also afterwards", async () => {
    const session = await contained.stage.session([TOOLSET]);
    const creates = () => door.seen.filter((each) => each === "POST /containers/create").length;
    const before = creates();
    await session.say(`${bash("echo ran >> runs; cat runs")}\n---\nsay: done`);
    await until(() => creates() > before, { timeoutMs: 30_000, what: "a container is made" });
    await contained.stage.restart("hands");
    await session.settled();
    await session.turn(`${bash(`echo ${session.nonce} > mine`)}\n---\nsay: done`);
    await readsItsFile(session);
    live.push(session);
    await expectExactly(live);
  });
});
