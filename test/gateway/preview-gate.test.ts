// Which previews one connection may see (gateway/preview-gate.ts).

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { PreviewEvent, PreviewType } from "../../gateway/preview-gate.ts";
import { PreviewGate } from "../../gateway/preview-gate.ts";
import type { Fence } from "../../session-store/ids.ts";
import type { Preview } from "../../session-store/store.ts";

const BOTH: ReadonlySet<PreviewType> = new Set(["agent.message", "agent.thinking"] as const);

/** A request's previews: a start, then one a piece. */
function run(pieces: readonly string[], { span = "s1", fence = 1, id = "m1" } = {}): Preview[] {
  const base = { fence: fence as Fence, span, event: { type: "agent.message" as const, id } };
  return [{ ...base, n: 0 }, ...pieces.map((text, index) => ({ ...base, n: index + 1, delta: { index: 0, text } }))];
}
const textOf = (events: readonly PreviewEvent[]) => events.map((event) => (event.type === "event_delta" ? event.delta.content.text : "")).join("");

describe("previews", () => {
  test("of the open request pass: one start, then the pieces", () => {
    const gate = new PreviewGate(BOTH);
    gate.opened("s1", 1);
    expect(run(["he", "llo"]).flatMap((preview) => gate.hear(preview))).toEqual([
      { type: "event_start", event: { type: "agent.message", id: "m1" } },
      { type: "event_delta", event_id: "m1", delta: { type: "content_delta", index: 0, content: { type: "text", text: "he" } } },
      { type: "event_delta", event_id: "m1", delta: { type: "content_delta", index: 0, content: { type: "text", text: "llo" } } },
    ]);
  });

  test("that overtook the start of their request are held for it", () => {
    const gate = new PreviewGate(BOTH);
    expect(run(["he", "llo"]).flatMap((preview) => gate.hear(preview))).toEqual([]);
    expect(textOf(gate.opened("s1", 1))).toBe("hello");
  });

  test("after a gap stop for that request, and come again with the next", () => {
    const gate = new PreviewGate(BOTH);
    gate.opened("s1", 1);
    const [start, one, two, three] = run(["a", "b", "c"]);
    const heard = [start, one, three, two].flatMap((preview) => (preview ? gate.hear(preview) : []));
    expect(textOf(heard)).toBe("a");
    gate.closed();
    gate.opened("s2", 1);
    expect(textOf(run(["x"], { span: "s2", id: "m2" }).flatMap((preview) => gate.hear(preview)))).toBe("x");
  });

  test("of a connection opened in the middle of a request do not come", () => {
    const gate = new PreviewGate(BOTH);
    expect(
      run(["a", "b"])
        .slice(1)
        .flatMap((preview) => gate.hear(preview)),
    ).toEqual([]);
    expect(gate.opened("s2", 1)).toEqual([]);
  });

  test("of an older fence never pass, nor those of the right request under another fence", () => {
    const gate = new PreviewGate(BOTH);
    gate.opened("s2", 2);
    expect(run(["a"], { span: "s1", fence: 1 }).flatMap((preview) => gate.hear(preview))).toEqual([]);
    expect(run(["a"], { span: "s2", fence: 1 }).flatMap((preview) => gate.hear(preview))).toEqual([]);
    expect(run(["a"], { span: "s2", fence: 3 }).flatMap((preview) => gate.hear(preview))).toEqual([]);
  });

  test("end with the event itself and with the request", () => {
    const gate = new PreviewGate(BOTH);
    gate.opened("s1", 1);
    const [start, one, two] = run(["a", "b"]);
    if (!start || !one || !two) throw new Error("three previews");
    gate.hear(start);
    expect(gate.hear(one)).toHaveLength(1);
    gate.finished("m1");
    expect(gate.hear(two)).toEqual([]);
    gate.closed();
    expect(run(["a"]).flatMap((preview) => gate.hear(preview))).toEqual([]);
  });

  test("of kinds that were not asked for do not come, and do not break the run", () => {
    const gate = new PreviewGate(new Set<PreviewType>(["agent.message"]));
    gate.opened("s1", 1);
    const thinking: Preview = { fence: 1 as Fence, span: "s1", n: 0, event: { type: "agent.thinking", id: "t1" } };
    const message = run(["a"]).map((preview) => ({ ...preview, n: preview.n + 1 }));
    expect([thinking, ...message].flatMap((preview) => gate.hear(preview)).map(({ type }) => type)).toEqual(["event_start", "event_delta"]);
    const none = new PreviewGate(new Set<PreviewType>());
    none.opened("s1", 1);
    expect(run(["a"]).flatMap((preview) => none.hear(preview))).toEqual([]);
  });

  test("whatever is lost, doubled or late: what shows is one start and a prefix of the text", () => {
    fc.assert(
      fc.property(
        fc.array(fc.string({ maxLength: 3 }), { maxLength: 20 }),
        fc.array(fc.nat(40), { maxLength: 60 }),
        fc.nat(60),
        (pieces, order, openAt) => {
          const gate = new PreviewGate(BOTH);
          const previews = run(pieces);
          const stale = run(["zombie"], { fence: 0 });
          const shown: PreviewEvent[] = [];
          for (const [step, pick] of order.entries()) {
            if (step === openAt) shown.push(...gate.opened("s1", 1));
            const preview = previews[pick] ?? stale[pick % stale.length];
            if (preview) shown.push(...gate.hear(preview));
          }
          expect(pieces.join("").startsWith(textOf(shown))).toBe(true);
          expect(shown.filter(({ type }) => type === "event_start").length).toBeLessThanOrEqual(1);
          if (shown.length > 0) expect(shown[0]?.type).toBe("event_start");
        },
      ),
    );
  });
});
