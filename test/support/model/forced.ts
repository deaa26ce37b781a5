// What the scripted model plays when it must call a tool: a request that forces one is answered from its own script, never from the one that the
// conversation is about.
//
//   forced DIRECTIVE       any directive of script.ts, one a line, in the first user text that holds such lines
//
// Its steps are played one a request, in order, and the last one again and again; a request that was not answered plays its step once more.

import { blocksOf, type ModelRequest } from "./request.ts";
import { type Place, parseScript, type Step } from "./script.ts";

const LINE = /^\s*forced\s+(.*)$/;

export class ForcedScripts {
  readonly #answered = new Map<string, number>();

  /** The step of a request that forces a call, none where it holds no such script; null for any other request. */
  place({ messages, tool_choice: choice }: ModelRequest): Place | null {
    if (choice?.type !== "any" && choice?.type !== "tool") return null;
    for (const message of messages) {
      if (message.role !== "user") continue;
      for (const block of blocksOf(message)) {
        const lines = block.type === "text" ? linesOf(block.text) : [];
        const script = lines.join("\n");
        const steps: readonly Step[] = parseScript(script) ?? [];
        if (steps.length === 0) continue;
        const played = Math.min(this.#answered.get(script) ?? 0, steps.length - 1);
        return { step: steps[played] ?? null, key: `forced ${played}\n${script}`, played };
      }
    }
    return { step: null, key: "", played: 0 };
  }

  /** The request was answered to its end. */
  answered({ key, played }: Place): void {
    this.#answered.set(key.slice(key.indexOf("\n") + 1), played + 1);
  }

  clear(): void {
    this.#answered.clear();
  }
}

const linesOf = (text: string): string[] => text.split(/\r?\n/).flatMap((line) => LINE.exec(line)?.[1] ?? []);
