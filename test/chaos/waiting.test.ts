// A session that waits for a person survives everything dying: it waits on the same ids, an answer runs the call once, and an interrupt frees it.

import { describe, expect, test } from "vitest";
import { mint } from "../../session-store/ids.ts";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { type ChaosSession, scriptOf } from "./api.ts";
import { rolesOf, type StoreKind } from "./installation.ts";
import { ask, effectsBelow, endOf } from "./kill.ts";
import { useInstallation } from "./use-installation.ts";
import type { WireEvent } from "./wire-checkers.ts";

const ASKS = [{ type: "agent_toolset_20260401", configs: [{ name: "bash", permission_policy: { type: "always_ask" } }] }];

describe("with the embedded store", () => describeWaiting("embedded"));
needs("redis-server")("with Redis", () => describeWaiting("redis"));

function describeWaiting(store: StoreKind): void {
  const inUse = useInstallation(store);

  /** A session that waits for a confirmation, after everything died and was started again. */
  async function waiting(): Promise<{ session: ChaosSession; nonce: string; message: WireEvent; call: string }> {
    const { installation, api } = inUse();
    const nonce = mint("turn");
    const session = await api.openSession(ASKS);
    const { acknowledged: message } = await session.askFor(nonce, scriptOf(nonce));
    const before = asked(await session.settled());
    await Promise.all(rolesOf(store).map((role) => installation.kill(role)));
    await installation.startMissing();
    const after = asked(await session.settled());
    expect(after).toEqual(before);
    const [call] = after;
    if (call === undefined) throw new Error("nothing waits");
    return { session, nonce, message, call };
  }

  proves("wait:survives", "a confirmation after everything died runs the call once; an unknown id changes nothing", async () => {
    const { session, nonce, call } = await waiting();

    const unknown = await session.trySend({ type: "user.tool_confirmation", tool_use_id: "sevt_000000000000000000000000", result: "allow" });
    expect(unknown.status).toBe(400);
    expect(asked(await session.settled())).toEqual([call]);

    await session.send({ type: "user.tool_confirmation", tool_use_id: call, result: "allow" });
    const events = await session.settled();
    expect(stopsOf(events)).toEqual(["requires_action", "end_turn"]);
    expect(events.filter(({ type, tool_use_id: use }) => type === "agent.tool_result" && use === call)).toHaveLength(1);
    expect((await effectsBelow(inUse().installation.dataDir)).filter((line) => line === nonce)).toEqual([nonce]);
  });

  proves("wait:survives", "an interrupt after everything died closes the call, never runs it, and the next message works", async () => {
    const { session, nonce, call } = await waiting();

    await session.send({ type: "user.interrupt" });
    const events = await session.settled();
    const [closing, ...more] = events.filter(({ type, tool_use_id: use }) => type === "agent.tool_result" && use === call);
    expect({ more, isError: closing?.is_error }).toEqual({ more: [], isError: true });
    expect(stopsOf(events)).toEqual(["requires_action", "end_turn"]);

    const late = await session.trySend({ type: "user.tool_confirmation", tool_use_id: call, result: "allow" });
    expect(late.status).toBe(400);
    await session.send({ type: "user.message", content: [{ type: "text", text: "say: I am here" }] });
    expect(stopsOf(await session.settled())).toEqual(["requires_action", "end_turn", "end_turn"]);
    expect((await effectsBelow(inUse().installation.dataDir)).filter((line) => line === nonce)).toEqual([]);
    expect(inUse().model.stats().rejected).toBe(0);
  });

  test("two messages at once are both taken, each once", async () => {
    const { installation, api } = inUse();
    const session = await api.openSession([{ type: "agent_toolset_20260401" }]);
    const texts = ["say: one", "say: two"];
    const [one, two] = await Promise.all(texts.map((text) => session.send({ type: "user.message", content: [{ type: "text", text }] })));
    const events = await session.settled();
    const messages = events.filter(({ type }) => type === "user.message").map(({ id }) => id);
    expect([...messages].sort()).toEqual([one?.[0]?.id, two?.[0]?.id].sort());
    expect(new Set(messages).size).toBe(2);
    expect(stopsOf(events).at(-1)).toBe("end_turn");
    expect(await endOf(installation, session, [await ask(session)])).toEqual([]);
  });
}

/** The calls that the last idle names. */
function asked(events: readonly WireEvent[]): readonly string[] {
  const stop = events.findLast(({ type }) => type === "session.status_idle")?.stop_reason;
  return typeof stop === "object" && stop !== null && "event_ids" in stop && Array.isArray(stop.event_ids) ? stop.event_ids.map(String) : [];
}

function stopsOf(events: readonly WireEvent[]): readonly string[] {
  return events.flatMap(({ type, stop_reason: stop }) =>
    type === "session.status_idle" && typeof stop === "object" && stop !== null && "type" in stop ? [String(stop.type)] : [],
  );
}
