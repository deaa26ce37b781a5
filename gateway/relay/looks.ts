// What is looked at in a hand's messages, and the little that is changed in them. The list of all that a relayed message differs in:
//
//   L1  A hand asks a client for nothing that the client did not declare. Handshake era: the hand is told so, and the client hears nothing.
//       Stateless era: the client gets -32021 in place of the question.
//   L2  `_meta` holds no reserved key that is not the hand's to say (reserved.ts).
//   L3  A list of tools shows no tool that may not be called.
//   L4  Stateless era: lists and resources that depend on who asks leave as `private`; where a credential is used, or tools are left out, also with
//       `ttlMs` 0, since both may change at any time.
//   L5  A message of another kind than the era has (a batch after 2025-03-26, a question in the stateless era) is not passed on.
//   L6  Everything else passes byte for byte: state, cursors, handles, numbers, the order of members, unknown members and result types.

import { errorMessage, type RpcId } from "../mcp/rpc.ts";
import { lackingFor } from "./capabilities.ts";
import type { Look, Looker } from "./events.ts";
import { HandFailure } from "./failure.ts";
import { editsFromHand, mayHoldReserved } from "./reserved.ts";
import { type Edit, edited, itemsOf, type Member, memberOf, membersOf, skipSpace, stringOf, textOf, without } from "./spans.ts";
import type { Era, Policy } from "./upstream.ts";

const LACKS_CAPABILITY = -32_021;
const OPEN_ARRAY = 0x5b;
/** Deeper looks at long answers would cost more than the audit's line is worth. */
const JUDGED_BYTES_MAX = 65_536;
const CACHED = new Set(["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "server/discover"]);
const ASKING = new Set(["tools/call", "prompts/get", "resources/read"]);

/** In place of a method, where nobody asked. */
export const LISTENING = "";

export interface Asked {
  readonly era: Era;
  /** Of the request; null: nobody asked, or it is a stream to listen on. */
  readonly id: RpcId | null;
  readonly method: string;
  /** Both ends speak a revision that has batches. */
  readonly hasBatches?: boolean;
  /** What the client declared; asked for when a hand asks. */
  readonly capabilities: () => unknown;
  readonly policy: Policy;
  /** L4. `private`: a key decides who sees it; `none`: it may be another one the next moment. */
  readonly caching: "as-is" | "private" | "none";
  /** Tells the hand that its question can't be asked. */
  readonly refuse: (id: string, method: string) => void;
}

export class MessageLooker implements Looker {
  readonly #asked: Asked;
  readonly #listsTools: boolean;
  readonly #mayNotFlow: boolean;
  /** What the answer to the request was, as far as it was looked at. */
  outcome: "ok" | "error" | "asks" = "ok";
  /** The code of an error answer. */
  errorCode: string | null = null;

  constructor(asked: Asked) {
    this.#asked = asked;
    // A stream to listen on may bring the rest of any answer.
    this.#listsTools = (asked.method === "tools/list" || asked.method === LISTENING) && !asked.policy.isOpen;
    this.#mayNotFlow = this.#listsTools || (asked.caching !== "as-is" && CACHED.has(asked.method));
  }

  get isCollected(): boolean {
    return this.#mayNotFlow;
  }

  /** The status of an answer that asks for what the client can't do. L1 */
  statusOf(status: number): number {
    return this.errorCode === String(LACKS_CAPABILITY) && status === 200 ? 400 : status;
  }

  look(text: Buffer): Look {
    const at = skipSpace(text, 0);
    if (text[at] === OPEN_ARRAY) return this.#lookAtBatch(text, at);
    const members = membersOf(text);
    const method = memberOf(members, "method");
    if (!method) return this.#lookAtAnswer(text, members);
    const id = memberOf(members, "id");
    if (id) return this.#lookAtQuestion(text, members, { id, method });
    return changed(text, this.#reserved(text, memberOf(members, "params")));
  }

  /** An answer that needs no filter may go by; a question or a notice is seen whole. */
  mayFlow(beginning: Buffer): boolean | null {
    if (this.#mayNotFlow) return null;
    const members = membersOf(beginning);
    return members.some(({ name }) => name === "result" || name === "error") ? true : null;
  }

  /** Each by itself. L5 */
  #lookAtBatch(text: Buffer, at: number): Look {
    if (this.#asked.hasBatches !== true) throw new HandFailure("hand_unintelligible", "The hand answered with a batch.");
    const edits: Edit[] = [];
    const items = itemsOf(text, at);
    const looks = items.map(({ start, end }) => (text[start] === OPEN_ARRAY ? "drop" : this.look(text.subarray(start, end))));
    if (looks.every((look) => look === "drop")) return "drop";
    for (const [index, { start, end }] of items.entries()) {
      const look = looks[index];
      if (typeof look === "object") edits.push({ start, end, put: look.put.toString("utf8") });
    }
    return changed(text, [...edits, ...without(items, (_, index) => looks[index] === "drop")]);
  }

  /** L1 L5 */
  #lookAtQuestion(text: Buffer, members: readonly Member[], { id, method }: { id: Member; method: Member }): Look {
    const { era, capabilities, refuse } = this.#asked;
    if (era === "stateless") return "drop";
    const name = stringOf(text, method) ?? "";
    const params = memberOf(members, "params");
    if (lackingFor(name, params && readJson(text, params), capabilities())) {
      refuse(textOf(text, id), name);
      return "drop";
    }
    return changed(text, this.#reserved(text, params));
  }

  #lookAtAnswer(text: Buffer, members: readonly Member[]): Look {
    const { era, method } = this.#asked;
    const error = memberOf(members, "error");
    if (error) {
      this.outcome = "error";
      const code = memberOf(membersOf(text, error.start), "code");
      this.errorCode = code ? textOf(text, code) : null;
      return "pass";
    }
    const edits: Edit[] = [];
    for (const result of members) {
      if (result.name !== "result") continue;
      const needsLook = this.#listsTools || this.#mayNotFlow || (era === "stateless" && ASKING.has(method)) || text.length <= JUDGED_BYTES_MAX;
      const inner = needsLook ? membersOf(text, result.start) : [];
      if (era === "stateless" && ASKING.has(method)) {
        const lacking = this.#lackingIn(text, inner);
        if (lacking) return lacking;
      }
      if (isTrue(text, memberOf(inner, "isError"))) this.outcome = "error";
      if (this.#listsTools) edits.push(...this.#hidden(text, inner));
      edits.push(...this.#cached(inner), ...this.#reserved(text, result));
    }
    return changed(text, edits);
  }

  /** L1 */
  #lackingIn(text: Buffer, result: readonly Member[]): Look | null {
    const requests = memberOf(result, "inputRequests");
    const type = memberOf(result, "resultType");
    if (type && stringOf(text, type) === "input_required") this.outcome = "asks";
    if (!requests) return null;
    const { capabilities, id } = this.#asked;
    const declared = capabilities();
    const lacking: Record<string, unknown> = {};
    for (const each of membersOf(text, requests.start)) {
      const inner = membersOf(text, each.start);
      const [method, params] = [memberOf(inner, "method"), memberOf(inner, "params")];
      Object.assign(lacking, method && lackingFor(stringOf(text, method) ?? "", params && readJson(text, params), declared));
    }
    const names = Object.keys(lacking);
    if (names.length === 0) return null;
    this.outcome = "error";
    this.errorCode = String(LACKS_CAPABILITY);
    const message = `Missing required client capabilities: ${names.join(", ")}`;
    return { put: Buffer.from(JSON.stringify(errorMessage(id, { code: LACKS_CAPABILITY, message, data: { requiredCapabilities: lacking } }))) };
  }

  /** L3 */
  #hidden(text: Buffer, result: readonly Member[]): Edit[] {
    const { policy } = this.#asked;
    return result
      .filter(({ name }) => name === "tools")
      .flatMap(({ start }) =>
        without(itemsOf(text, start), (item) =>
          membersOf(text, item.start).some((member) => member.name === "name" && policy.refused(stringOf(text, member) ?? "") !== null),
        ),
      );
  }

  /** L4 */
  #cached(result: readonly Member[]): Edit[] {
    const { era, method, caching } = this.#asked;
    if (era !== "stateless" || caching === "as-is" || !CACHED.has(method)) return [];
    return result.flatMap(({ name, start, end }) => {
      if (name === "cacheScope") return [{ start, end, put: '"private"' }];
      return name === "ttlMs" && caching === "none" ? [{ start, end, put: "0" }] : [];
    });
  }

  /** L2 */
  #reserved(text: Buffer, holder: Member | undefined): Edit[] {
    const { era, id, method } = this.#asked;
    if (!mayHoldReserved(text)) return [];
    return editsFromHand(text, holder, era === "stateless" && method === "subscriptions/listen" ? id : null);
  }
}

const changed = (text: Buffer, edits: readonly Edit[]): Look => (edits.length === 0 ? "pass" : { put: edited(text, edits) });
const isTrue = (text: Buffer, member: Member | undefined): boolean => member !== undefined && textOf(text, member) === "true";

/** A part of a message that its sender may have got wrong: then it says nothing. */
function readJson(text: Buffer, member: Member): unknown {
  try {
    return JSON.parse(textOf(text, member));
  } catch {
    return undefined;
  }
}
