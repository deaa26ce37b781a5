// Which tools of a hand may be seen and called: what its record allows, less what is held back until somebody approves it.

import type { RegisteredHand } from "../../hands/registry.ts";
import type { Policy } from "./upstream.ts";

export function policyOf({ allowed_tools, held_back }: Pick<RegisteredHand, "allowed_tools" | "held_back">): Policy {
  const allowed = allowed_tools && new Set(allowed_tools);
  const held = new Map(held_back.map(({ name, reason }) => [name, reason]));
  return {
    isOpen: allowed === null && held.size === 0,
    refused(tool) {
      if (allowed && !allowed.has(tool)) return "This tool is not among those that may be called on this hand.";
      const reason = held.get(tool);
      if (reason === undefined) return null;
      const why = {
        changed: "its definition is not the one that was approved",
        new: "it was not approved yet",
        suspicious: "its definition looks unsafe",
      };
      return `This tool is held back: ${why[reason]}.`;
    },
  };
}
