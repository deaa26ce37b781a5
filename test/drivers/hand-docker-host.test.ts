// A hand host with containers, as a program of its own: what it leaves and finds again when it dies, and what it needs to start.

import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { afterEach, beforeAll, expect, it } from "vitest";
import { chooseDriver } from "../../hands/choose.ts";
import type { HandsClient } from "../../hands/client.ts";
import { readConfig } from "../../hands/config.ts";
import { LABEL } from "../../hands/docker/container.ts";
import type { Holder, Outcome } from "../../hands/hand.ts";
import { type Fence, mintSession } from "../../session-store/ids.ts";
import { type EngineDoor, engine, ensureImage, IMAGE_MS, openEngineDoor, removeAll } from "../support/docker.ts";
import { proves } from "../support/proves.ts";
import { ENGINE_SOCKET, needs } from "../support/real-part.ts";
import { type HostProcess, makePlace, type Place } from "./hand-host.ts";

const never = new AbortController().signal;
const TROUBLE_MS = 20_000;

needs("docker")("a hand host with containers", () => {
  const places: Place[] = [];
  const hosts = new Set<string>();
  let door: EngineDoor | undefined;

  beforeAll(ensureImage, IMAGE_MS);
  afterEach(async () => {
    for (const place of places.splice(0)) await place.clean();
    for (const host of hosts) await removeAll(host);
    hosts.clear();
    await door?.close();
    door = undefined;
  });

  const place = (settings: Record<string, string> = {}): Place => {
    const made = makePlace(Object.assign(settings, { MANYHANDS_SANDBOX: settings.MANYHANDS_SANDBOX ?? "docker" }));
    places.push(made);
    return made;
  };
  const start = async (of: Place): Promise<HostProcess> => {
    const host = await of.start();
    hosts.add(host.id);
    return host;
  };
  const containers = async (host: HostProcess) =>
    (await engine.listContainers({ all: true, filters: { label: [`${LABEL.host}=${host.id}`] } })).map(({ Id, Labels, State }) => ({
      id: Id,
      hand: Labels[LABEL.hand],
      state: State,
    }));
  /** A session's hand, with a container. */
  const newHand = async (hands: HandsClient) => {
    const holder: Holder = { session: mintSession(), fence: 1 as Fence };
    const ref = await hands.provision(holder, { environment_id: "env_1" }, never);
    const bash = (id: string, command: string, fence = 1): Promise<Outcome> =>
      hands.execute({ ...holder, fence: fence as Fence }, ref, { id, name: "bash", input: { command } }, false, never);
    return { holder, ref, bash };
  };
  const folders = (of: Place) => readdirSync(join(of.dataDir, "hands/sandboxes")).sort();

  proves(
    "hand:reclaimed",
    "a host killed with five containers, three of them given back, comes back to exactly the two live ones",
    async () => {
      const here = place();
      const before = await start(here);
      const hands = here.client();
      const all = await Promise.all([1, 2, 3, 4, 5].map(() => newHand(hands)));
      expect(await containers(before)).toEqual([]);
      await Promise.all(all.map(({ bash }) => bash("first", "A=lost; echo kept > file")));
      expect(await containers(before)).toHaveLength(5);
      const [one, two, ...gone] = all;
      if (one === undefined || two === undefined) throw new Error("no hands");
      const cut = one.bash("cut", "touch started; (setsid sleep 3600 &); sleep 3600");
      const started = join(here.dataDir, "hands/sandboxes", one.ref.hand, "workspace/started");
      await expect.poll(() => existsSync(started), { timeout: 20_000 }).toBe(true);
      // Given back, as far as the ledger, when the host dies: the engine does not remove anything in time.
      const released = gone.map(({ holder, ref }) => hands.release(holder.session, ref.host, never));
      await before.end("SIGKILL");
      const after = await start(here);
      await Promise.all(released);
      expect(await cut).toEqual({ type: "unknown", reason: "the hand host was restarted while it ran" });

      await expect
        .poll(async () => (await containers(after)).map(({ hand }) => hand).sort(), { timeout: 30_000 })
        .toEqual([one.ref.hand, two.ref.hand].sort());
      expect(folders(here)).toEqual([one.ref.hand, two.ref.hand].sort());
      const adopted = await containers(after);
      // What ran under the host that died does not go on.
      const left = async () =>
        (await engine.getContainer(adopted.find(({ hand }) => hand === one.ref.hand)?.id ?? "").top({ ps_args: "-eo pid,comm" })).Processes.flat();
      await expect.poll(async () => (await left()).filter((name: string) => name === "sleep"), { timeout: 20_000 }).toHaveLength(1);
      for (const { bash } of [one, two]) {
        expect(textOf(await bash("second", "cat file; echo [$A]", 2))).toBe("shell restarted; files kept\nkept\n[]");
        expect(textOf(await bash("third", "echo on", 2))).toBe("on");
      }
      expect((await containers(after)).map(({ id }) => id).sort()).toEqual(adopted.map(({ id }) => id).sort());
      expect(await after.end("SIGTERM")).toBe(0);
      expect(await containers(after)).toEqual([]);
      expect(folders(here)).toEqual([one.ref.hand, two.ref.hand].sort());
    },
    180_000,
  );

  it("removes containers that no hand of its ledger owns, also when the engine refuses at first", async () => {
    door = await openEngineDoor();
    const here = place({ DOCKER_HOST: `unix://${door.socketPath}` });
    const before = await start(here);
    const stray = await engine.createContainer({
      Image: "manyhands-hand",
      Cmd: ["true"],
      Labels: { [LABEL.host]: before.id, [LABEL.hand]: "hand_nobody" },
    });
    await before.end("SIGKILL");
    door.decide = (method) => (method === "DELETE" ? "refuse" : "pass");
    const after = await start(here);
    expect(await containers(after)).toHaveLength(1);
    door.decide = () => "pass";
    await expect.poll(() => containers(after), { timeout: 20_000 }).toEqual([]);
    await expect(stray.inspect()).rejects.toMatchObject({ statusCode: 404 });
  }, 120_000);

  it("gives a hand back while the engine answers errors for twenty seconds: folder and ledger wait, then all of it is gone", async () => {
    door = await openEngineDoor();
    const here = place({ DOCKER_HOST: `unix://${door.socketPath}` });
    const host = await start(here);
    const hands = here.client();
    const { holder, ref, bash } = await newHand(hands);
    await bash("a", "echo kept > file");
    const until = Date.now() + TROUBLE_MS;
    door.decide = () => (Date.now() < until ? "refuse" : "pass");
    await hands.release(holder.session, ref.host, never);
    expect(folders(here)).toEqual([ref.hand]);
    expect(await hands.instances(host.id, never)).toEqual([{ hand: ref.hand, session: holder.session }]);
    await expect.poll(() => containers(host), { timeout: TROUBLE_MS + 20_000, interval: 500 }).toEqual([]);
    expect(Date.now()).toBeGreaterThan(until);
    await expect.poll(() => hands.instances(host.id, never), { timeout: 10_000 }).toEqual([]);
    expect(folders(here)).toEqual([]);
  }, 120_000);

  it("ends containers that do nothing, and keeps their files", async () => {
    const here = place({ MANYHANDS_SANDBOX_IDLE_MS: "1000" });
    const host = await start(here);
    const { bash } = await newHand(here.client());
    await bash("a", "echo kept > file");
    await expect.poll(() => containers(host), { timeout: 30_000 }).toEqual([]);
    expect(textOf(await bash("b", "cat file"))).toBe("shell restarted; files kept\nkept");
  });

  it("takes up what ran while the engine could not be asked at the start, so that it ends when it stays idle", async () => {
    door = await openEngineDoor();
    const here = place({ DOCKER_HOST: `unix://${door.socketPath}`, MANYHANDS_SANDBOX_IDLE_MS: "1000" });
    const before = await start(here);
    const { bash } = await newHand(here.client());
    const running = bash("a", "sleep 60");
    await expect.poll(() => containers(before), { timeout: 20_000 }).toHaveLength(1);
    await before.end("SIGKILL");
    door.decide = (method, path) => (method === "GET" && path === "/containers/json" ? "refuse" : "pass");
    const after = await start(here);
    expect((await running).type).toBe("unknown");
    expect(await containers(after)).toHaveLength(1);
    door.decide = () => "pass";
    await expect.poll(() => containers(after), { timeout: 30_000 }).toEqual([]);
  }, 120_000);

  it("does not start where containers are asked for and can't be had, and says what to do", async () => {
    const without = place({ MANYHANDS_DOCKER_IMAGE: "manyhands-no-such-image" });
    await expect(without.start()).rejects.toThrow("ended with 2 before it listened");
    const nowhere = place({ DOCKER_HOST: "unix:///nowhere/docker.sock" });
    await expect(nowhere.start()).rejects.toThrow("ended with 2 before it listened");
    const config = readConfig({ MANYHANDS_SANDBOX: "docker", MANYHANDS_DOCKER_IMAGE: "manyhands-no-such-image" });
    const asked = performance.now();
    await expect(chooseDriver({ config, host: "host_none", hasContainers: false, log: pino({ level: "silent" }) })).rejects.toThrow(
      'MANYHANDS_SANDBOX is docker, and the image manyhands-no-such-image is not there: "npm run image" makes it',
    );
    expect(performance.now() - asked).toBeLessThan(5_000);
  }, 60_000);

  it("takes containers by itself where they can be had, and the virtual sandbox elsewhere; never the latter for a hand in a container", async () => {
    const auto = { MANYHANDS_SANDBOX: "auto" };
    const here = place(auto);
    const host = await start(here);
    expect(host.lines.find(({ msg }) => msg === "sandbox.chosen")).toMatchObject({ sandbox: "docker" });
    const { bash } = await newHand(here.client());
    expect(textOf(await bash("a", "python3 -c 'print(6 * 7)'"))).toBe("42");
    await host.end("SIGTERM");

    const elsewhere = place({ ...auto, MANYHANDS_DOCKER_IMAGE: "manyhands-no-such-image" });
    const other = await start(elsewhere);
    expect(other.lines.find(({ msg }) => msg === "sandbox.chosen")).toMatchObject({ sandbox: "virtual" });
    await other.end("SIGTERM");

    const settings: Record<string, string> = { ...auto };
    const changing = place(settings);
    const first = await start(changing);
    const hand = await newHand(changing.client());
    await hand.bash("a", "echo kept > file");
    await first.end("SIGKILL");
    settings.DOCKER_HOST = "unix:///nowhere/docker.sock";
    const second = await start(changing);
    expect(second.lines.find(({ msg }) => msg === "sandbox.chosen")).toMatchObject({ sandbox: "virtual" });
    expect(textOf(await hand.bash("b", "cat file"))).toBe(
      "failed: the hand is a docker sandbox, and the hand host could not use docker when it started",
    );
    await second.end("SIGTERM");
    settings.DOCKER_HOST = `unix://${ENGINE_SOCKET}`;
    await start(changing);
    expect(textOf(await hand.bash("c", "cat file"))).toBe("shell restarted; files kept\nkept");
  }, 180_000);
});

function textOf(outcome: Outcome): string {
  if (outcome.type !== "done") return `${outcome.type}: ${outcome.reason}`;
  return outcome.content.map((block) => (block.type === "text" ? block.text : `<${block.type}>`)).join("");
}
