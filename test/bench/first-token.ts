// Time to first token while a hand is slow to come: the product as it is, and beside it the coupled design, which waits for the hand first.
//
// Gateway, vault proxy, hand host and Redis are programs; the worker is the product's own (harnesses/worker.ts), run in this process, so that two
// things can be put around it that the product has no setting for: hands whose provisioning takes as long as it is told to, and a harness that
// has the hand provisioned before it lets the real one think. Both designs are the same code but for that one flag, and take turns.

import { setTimeout as sleep } from "node:timers/promises";
import Anthropic from "@anthropic-ai/sdk";
import type { Logger } from "pino";
import { makeHands } from "../../hands/client.ts";
import { HandHosts } from "../../hands/directory.ts";
import type { Hands } from "../../hands/hand.ts";
import { claudeHarness } from "../../harnesses/claude/harness.ts";
import { grantMinter } from "../../harnesses/grant.ts";
import type { Harness } from "../../harnesses/harness.ts";
import { startWorker } from "../../harnesses/worker.ts";
import { openStore } from "../../session-store/open.ts";
import { Installation } from "../chaos/installation.ts";
import { chanceOf } from "../chaos/seed.ts";
import { startModel } from "../support/model/server.ts";
import { median, quantile, slopeOf } from "./figures.ts";

/** What the model takes by itself until its first piece of text. */
const MODEL_MS = 300;
const DELAYS_MS = [0, 100, 1_000, 5_000] as const;
const LEASE_MS = 60_000;
const TURN_MS = 120_000;
const DRAIN_MS = 5_000;
const SEED = 20_260_401;
/** Published for one hosted sandbox, create to first command (the E2B row): quantile, ms; straight lines between. */
const PUBLISHED = [
  [0, 380],
  [0.5, 442],
  [0.9, 682],
  [0.95, 811],
  [0.99, 4_135],
  [1, 5_460],
] as const;
/** A turn that needs its hand: the first text is said before it, as agents do. */
const SCRIPT = `wait: ${MODEL_MS}\nsay: let me look at that\ncall bash: {"command":"true"}\nsay: done`;

type Design = "decoupled" | "coupled";

interface Rig {
  /** One turn in a new session: ms from the send to the first piece of text. The rest of the turn goes on by itself. */
  firstToken(design: Design, provisionMs: number): Promise<number>;
  /** Resolves when every turn that was begun is over. */
  rest(): Promise<void>;
  close(): Promise<void>;
}

/** `scale`: 1 for twelve samples of each delay and sixty draws. */
export async function measureFirstToken(work: string, scale: number, log: Logger): Promise<void> {
  const rig = await startRig(work, log);
  try {
    for (const design of ["decoupled", "coupled"] as const) await rig.firstToken(design, 0);
    await overDelays(rig, Math.max(5, Math.round(12 * scale)));
    await overPublished(rig, Math.max(40, Math.round(60 * scale)));
  } finally {
    await rig.close();
  }
}

async function overDelays(rig: Rig, rounds: number): Promise<void> {
  const samples = { decoupled: [], coupled: [] } as Record<Design, { x: number; y: number }[]>;
  // The coupled design waits out each delay: fewer of them say enough.
  const coupledRounds = Math.ceil(rounds / 3);
  for (let round = 0; round < rounds; round += 1)
    for (const provisionMs of DELAYS_MS)
      for (const design of round < coupledRounds ? (["decoupled", "coupled"] as const) : (["decoupled"] as const))
        samples[design].push({ x: provisionMs, y: await rig.firstToken(design, provisionMs) });
  await rig.rest();

  console.log(`\n## Time to first token over the time that a hand takes to come (model waits ${MODEL_MS} ms)\n`);
  console.log("| provisioning takes | decoupled, median ms | n | coupled, median ms | n |");
  console.log("| ---: | ---: | ---: | ---: | ---: |");
  for (const provisionMs of DELAYS_MS) {
    const of = (design: Design) => samples[design].filter(({ x }) => x === provisionMs).map(({ y }) => y);
    const [one, other] = [of("decoupled"), of("coupled")];
    console.log(`| ${provisionMs} ms | ${median(one).toFixed(1)} | ${one.length} | ${median(other).toFixed(1)} | ${other.length} |`);
  }
  const [decoupled, coupled] = [slopeOf(samples.decoupled), slopeOf(samples.coupled)];
  const isNothing = Math.abs(decoupled.slope) <= 2 * decoupled.standardError;
  console.log(
    `\nSlope, by least squares: decoupled ${decoupled.slope.toFixed(4)} ± ${decoupled.standardError.toFixed(4)} (standard error; ${
      isNothing ? "0 within two of them" : "NOT 0 within two of them"
    }; bar 0.02), coupled ${coupled.slope.toFixed(4)} ± ${coupled.standardError.toFixed(4)}.`,
  );
}

async function overPublished(rig: Rig, n: number): Promise<void> {
  const drawn = draw(n);
  const samples: Record<Design, number[]> = { decoupled: [], coupled: [] };
  for (const provisionMs of drawn)
    for (const design of ["decoupled", "coupled"] as const) samples[design].push(await rig.firstToken(design, provisionMs));
  await rig.rest();

  console.log(
    `\n## Time to first token with provisioning times drawn from published quantiles (seed ${SEED}, ${n} strata, model waits ${MODEL_MS} ms)\n`,
  );
  console.log("| | provisioning P ms | decoupled ms | coupled ms | ratio | M / (M + P) | bar |");
  console.log("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
  for (const [name, q, bar] of [
    ["p50", 0.5, 0.45],
    ["p95", 0.95, 0.3],
  ] as const) {
    const [p, one, other] = [quantile(drawn, q), quantile(samples.decoupled, q), quantile(samples.coupled, q)];
    const bound = MODEL_MS / (MODEL_MS + p);
    console.log(
      `| ${name} | ${p.toFixed(0)} | ${one.toFixed(1)} | ${other.toFixed(1)} | ${(one / other).toFixed(2)} | ${bound.toFixed(2)} | ${bar.toFixed(2)} |`,
    );
  }
}

/** One draw from each of `n` equal strata, in a drawn order: the tail is there in a short run, too. */
function draw(n: number): readonly number[] {
  const chance = chanceOf(SEED);
  const drawn = Array.from({ length: n }, (_, stratum) => publishedAt((stratum + chance.next()) / n));
  return drawn
    .map((ms) => ({ ms, place: chance.next() }))
    .sort((one, other) => one.place - other.place)
    .map(({ ms }) => ms);
}

function publishedAt(q: number): number {
  const next = PUBLISHED.findIndex(([at]) => at >= q);
  const [to, toMs] = PUBLISHED[next] ?? PUBLISHED[PUBLISHED.length - 1] ?? [1, 0];
  const [from, fromMs] = PUBLISHED[next - 1] ?? [0, toMs];
  return to === from ? toMs : fromMs + ((q - from) / (to - from)) * (toMs - fromMs);
}

async function startRig(work: string, log: Logger): Promise<Rig> {
  const model = await startModel({});
  const installation = await Installation.make({ store: "redis", work, modelUrl: model.url, leaseMs: LEASE_MS, env: { NODE_ENV: "production" } });
  await installation.start("redis");
  await Promise.all((["vault-proxy", "hands", "gateway"] as const).map((role) => installation.start(role)));

  /** Sessions that wait for their hand first, and how long a session's hand takes to come, until it is there. */
  const coupled = new Set<string>();
  const delays = new Map<string, number>();
  const store = await openStore({ redisUrl: installation.redisUrl, dataDir: installation.dataDir, leaseMs: LEASE_MS, log });
  const handKey = (await installation.readData("keys", "hand.key")).trim();
  const hosts = new HandHosts({ store, url: installation.handsUrl, log });
  const client = makeHands({ resolve: (id) => hosts.resolve(id), local: { url: installation.handsUrl }, handKey, log });
  const hands = slow(client, delays);
  const worker = await startWorker({
    store,
    hands,
    mintGrant: await grantMinter(`${installation.dataDir}/keys/grant.private.jwk`),
    vaultUrl: installation.vaultUrl,
    harness: handFirst(claudeHarness(), coupled, async ({ id, signal }) => {
      const { fence } = await store.getSession(id);
      await hands.provision({ session: id, fence }, { environment_id: "bench" }, signal);
    }),
    log,
  });
  hosts.start(client);

  const sdk = new Anthropic({ apiKey: installation.apiKey, baseURL: installation.url, maxRetries: 0 });
  const agent = await sdk.beta.agents.create({ name: "bench", model: "scripted-model", tools: [{ type: "agent_toolset_20260401" }] });
  const environment = await sdk.beta.environments.create({ name: "bench" });
  const turns: Promise<void>[] = [];
  return {
    async firstToken(design, ms) {
      const session = await sdk.beta.sessions.create({ agent: agent.id, environment_id: environment.id });
      delays.set(session.id, ms);
      if (design === "coupled") coupled.add(session.id);
      const stream = await sdk.beta.sessions.events.stream(session.id, { event_deltas: ["agent.message"] });
      const events = (stream as AsyncIterable<{ type: string }>)[Symbol.asyncIterator]();
      const started = performance.now();
      await sdk.beta.sessions.events.send(session.id, { events: [{ type: "user.message", content: [{ type: "text", text: SCRIPT }] }] });
      await until(events, "event_delta");
      const took = performance.now() - started;
      const turn = until(events, "session.status_idle").finally(() => stream.controller.abort());
      turn.catch(() => {}); // Awaited in `rest`.
      turns.push(turn);
      return took;
    },
    async rest() {
      const late = sleep(TURN_MS, undefined, { ref: false }).then(() => Promise.reject(new Error(`A turn was not over within ${TURN_MS} ms.`)));
      await Promise.race([Promise.all(turns.splice(0)), late]);
    },
    async close() {
      await worker.drain(DRAIN_MS);
      await hosts.stop();
      await client.close();
      await store.close();
      await installation[Symbol.asyncDispose]();
      await model.close();
    },
  };
}

/** Hands of which each comes so much later than it would, by its session. One that is there already is found at once. */
function slow(hands: Hands, delays: Map<string, number>): Hands {
  return new Proxy(hands, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      if (name !== "provision") return value.bind(target);
      return async (...[holder, resources, signal]: Parameters<Hands["provision"]>) => {
        await sleep(delays.get(holder.session) ?? 0, undefined, { signal });
        delays.delete(holder.session);
        return target.provision(holder, resources, signal);
      };
    },
  });
}

/** The coupled design: the harness as it is, once its hand is there. */
function handFirst(harness: Harness, coupled: ReadonlySet<string>, provision: (session: Parameters<Harness["run"]>[0]) => Promise<void>): Harness {
  return {
    name: harness.name,
    async run(session) {
      if (coupled.has(session.id)) await provision(session);
      return await harness.run(session);
    },
  };
}

async function until(events: AsyncIterator<{ type: string }>, type: string): Promise<void> {
  for (let next = await events.next(); ; next = await events.next()) {
    if (next.done) throw new Error(`The stream ended before ${type}.`);
    if (next.value.type === type) return;
  }
}
