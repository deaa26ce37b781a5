// docker-compose.yml without the Compose program: what it says, read by a schema that knows everything in it, and the same containers made of it.
//
//   Q1  A word that this reader does not know is refused: nothing in the file goes untested.

import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type Docker from "dockerode";
import { parse } from "yaml";
import { z } from "zod";
import { statusOf } from "../../hands/docker/engine.ts";
import { mint } from "../../session-store/ids.ts";
import { engine } from "./docker.ts";
import { ROOT } from "./process.ts";
import { until } from "./until.ts";

const seconds = z.string().regex(/^\d+s$/);
const Health = z.strictObject({
  test: z.tuple([z.literal("CMD")], z.string()),
  interval: seconds,
  timeout: seconds,
  retries: z.number().int(),
});
const Service = z.strictObject({
  image: z.string(),
  build: z.literal(".").optional(),
  profiles: z.array(z.string()).optional(),
  command: z.array(z.string()).min(1),
  init: z.boolean().default(false),
  user: z.string().optional(),
  read_only: z.boolean().default(false),
  tmpfs: z.array(z.string()).default([]),
  cap_drop: z.array(z.string()).default([]),
  security_opt: z.array(z.string()).default([]),
  restart: z.enum(["no", "unless-stopped"]),
  stop_grace_period: seconds.optional(),
  network_mode: z.literal("none").optional(),
  networks: z.array(z.string()).default([]),
  environment: z.record(z.string(), z.string()).default({}),
  volumes: z.array(z.string()).default([]),
  secrets: z.array(z.string()).default([]),
  ports: z.array(z.string()).default([]),
  depends_on: z.record(z.string(), z.strictObject({ condition: z.literal("service_healthy") })).default({}),
  healthcheck: Health.optional(),
});
const File = z.strictObject({
  name: z.string(),
  services: z.record(z.string(), Service),
  secrets: z.record(z.string(), z.strictObject({ file: z.string() })),
  networks: z.record(z.string(), z.strictObject({ internal: z.boolean() }).nullable()),
  volumes: z.record(z.string(), z.null()),
});
export type ComposeFile = z.infer<typeof File>;
type Service = z.infer<typeof Service>;

/** Reads the file as Compose does: anchors merged, `x-` parts left out, `${NAME:-default}` from `variables`. Q1 */
export async function readCompose(variables: Readonly<Record<string, string>> = {}): Promise<ComposeFile> {
  const text = await readFile(join(ROOT, "docker-compose.yml"), "utf8");
  const read = z.record(z.string(), z.unknown()).parse(fill(parse(text, { merge: true }), variables));
  return File.parse(Object.fromEntries(Object.entries(read).filter(([name]) => !name.startsWith("x-"))));
}

function fill(value: unknown, variables: Readonly<Record<string, string>>): unknown {
  if (typeof value === "string")
    return value.replace(/\$\$|\$\{(\w+):-([^}]*)\}/g, (found, name: string, absent: string) => (found === "$$" ? "$" : variables[name] || absent));
  if (Array.isArray(value)) return value.map((each) => fill(each, variables));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, fill(each, variables)]));
}

const READY_MS = 120_000;

/** One project: its networks, volumes and containers, under a name of its own, so that it meets no other on the engine. */
export class ComposeProject {
  readonly file: ComposeFile;
  readonly #name = mint("compose").toLowerCase().replaceAll("_", "-");
  readonly #images: Readonly<Record<string, string>>;
  /** Holds what the file calls `.`. */
  readonly #folder: string;
  readonly #containers = new Map<string, Docker.Container>();

  private constructor(file: ComposeFile, images: Readonly<Record<string, string>>, folder: string) {
    this.file = file;
    this.#images = images;
    this.#folder = folder;
  }

  /** Makes networks and volumes. `images`: what stands in for the ones of the file. */
  static async make(file: ComposeFile, images: Readonly<Record<string, string>>): Promise<ComposeProject> {
    const project = new ComposeProject(file, images, await mkdtemp(join(tmpdir(), "manyhands-compose-")));
    for (const [name, network] of Object.entries(file.networks))
      await engine.createNetwork({ Name: project.#nameOf(name), Driver: "bridge", Internal: network?.internal ?? false });
    for (const name of Object.keys(file.volumes)) await engine.createVolume({ Name: project.#nameOf(name) });
    return project;
  }

  get folder(): string {
    return this.#folder;
  }

  /** The address by which a container on a network reaches this machine. */
  async addressOfHost(network: string): Promise<string> {
    const { IPAM } = await engine.getNetwork(this.#nameOf(network)).inspect();
    const address: unknown = IPAM?.Config?.[0]?.Gateway;
    if (typeof address !== "string") throw new Error(`The network ${network} has no gateway.`);
    return address;
  }

  /** Starts a service, and waits until those that it depends on are healthy. `replica`: one more of it, as `--scale` makes them. */
  async up(service: string, { replica = 1, overrides = {} as Partial<Service> } = {}): Promise<Docker.Container> {
    const said = this.file.services[service];
    if (!said) throw new Error(`There is no service ${service}.`);
    for (const needed of Object.keys(said.depends_on)) await this.healthy(needed);
    const what = { ...said, ...overrides };
    const [first, ...others] = what.networks;
    const container = await engine.createContainer({
      name: `${this.#nameOf(service)}-${replica}`,
      Image: this.#images[what.image] ?? what.image,
      Cmd: what.command,
      ...(what.user === undefined ? {} : { User: what.user }),
      Env: Object.entries(what.environment).map(([name, value]) => `${name}=${value}`),
      ...(what.healthcheck ? { Healthcheck: healthOf(what.healthcheck) } : {}),
      ExposedPorts: Object.fromEntries(what.ports.map((port) => [`${port.split(":").at(-1)}/tcp`, {}])),
      HostConfig: {
        Init: what.init,
        ReadonlyRootfs: what.read_only,
        Tmpfs: Object.fromEntries(what.tmpfs.map((path) => [path, ""])),
        CapDrop: what.cap_drop,
        SecurityOpt: what.security_opt,
        RestartPolicy: { Name: what.restart },
        NetworkMode: what.network_mode ?? (first === undefined ? "default" : this.#nameOf(first)),
        Binds: [...what.volumes.map((volume) => this.#bindOf(volume)), ...what.secrets.map((secret) => this.#secretOf(secret))],
        PortBindings: Object.fromEntries(what.ports.map(bindingOf)),
      },
      ...(first === undefined ? {} : { NetworkingConfig: { EndpointsConfig: { [this.#nameOf(first)]: { Aliases: [service] } } } }),
    });
    this.#containers.set(`${service}-${replica}`, container);
    for (const other of others)
      await engine.getNetwork(this.#nameOf(other)).connect({ Container: container.id, EndpointConfig: { Aliases: [service] } });
    await container.start();
    return container;
  }

  container(service: string, replica = 1): Docker.Container {
    const container = this.#containers.get(`${service}-${replica}`);
    if (!container) throw new Error(`${service} was not started.`);
    return container;
  }

  /** Waits until a service's own health check says that it is well. */
  async healthy(service: string): Promise<void> {
    await until(
      async () => {
        const { State } = await this.container(service).inspect();
        if (!State.Running || State.Restarting) throw new Error(`${service} ended: ${await this.logs(service)}`);
        return State.Health?.Status === "healthy";
      },
      { timeoutMs: READY_MS, pollMs: 250, what: `${service} to be healthy` },
    );
  }

  async logs(service: string, replica = 1): Promise<string> {
    return (await this.container(service, replica).logs({ stdout: true, stderr: true, tail: 50 })).toString();
  }

  /** The port of this machine at which a port of a service is published. */
  async published(service: string, port: number): Promise<number> {
    const { NetworkSettings } = await this.container(service).inspect();
    return Number(NetworkSettings.Ports[`${port}/tcp`]?.[0]?.HostPort);
  }

  /** Everything of it goes. */
  async down(): Promise<void> {
    for (const container of this.#containers.values()) await ifThere(container.remove({ force: true, v: true }));
    for (const name of Object.keys(this.file.networks)) await ifThere(engine.getNetwork(this.#nameOf(name)).remove());
    for (const name of Object.keys(this.file.volumes)) await ifThere(engine.getVolume(this.#nameOf(name)).remove());
    await rm(this.#folder, { recursive: true, force: true });
  }

  #nameOf(part: string): string {
    return `${this.#name}-${part}`;
  }

  /** A named volume, or a path that begins with `.`. */
  #bindOf(volume: string): string {
    const [from = "", to = "", ...mode] = volume.split(":");
    if (from.startsWith(".")) return [join(this.#folder, from), to, ...mode].join(":");
    if (!Object.hasOwn(this.file.volumes, from)) throw new Error(`There is no volume ${from}.`);
    return [this.#nameOf(from), to, ...mode].join(":");
  }

  #secretOf(name: string): string {
    const secret = this.file.secrets[name];
    if (!secret) throw new Error(`There is no secret ${name}.`);
    return `${join(this.#folder, secret.file)}:/run/secrets/${name}:ro`;
  }
}

const NANOSECONDS = 1e9;
const nanoseconds = (text: string) => Number.parseInt(text, 10) * NANOSECONDS;

function healthOf({ test, interval, timeout, retries }: z.infer<typeof Health>) {
  return { Test: test, Interval: nanoseconds(interval), Timeout: nanoseconds(timeout), Retries: retries };
}

/** `address:port:port of the container`. */
function bindingOf(port: string): [string, { HostIp: string; HostPort: string }[]] {
  const [address = "", outside = "", inside = ""] = port.split(":");
  return [`${inside}/tcp`, [{ HostIp: address, HostPort: outside }]];
}

async function ifThere(removed: Promise<unknown>): Promise<void> {
  try {
    await removed;
  } catch (error) {
    if (statusOf(error) !== 404) throw error;
  }
}
