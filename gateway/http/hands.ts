// Registered hands: `/v1/hands`. Names are ids; the registry (gateway/registry/) does the work.

import type { z } from "zod";
import { HAND_ADDRESS, HAND_KIND } from "../../hands/registry.ts";
import { LOG_URL } from "../../harnesses/log-tools.ts";
import { invalid } from "../answer.ts";
import { canonical, digestOf } from "../idempotency.ts";
import { Deleted, pageOf } from "./answer-schema.ts";
import type { Asker, Body, Door } from "./call.ts";
import { checkVaults } from "./check-vaults.ts";
import { pageOfDocuments } from "./documents.ts";
import { Hand, HandApprove, HandCreate, HandList, HandListed, HandUpdate, listedHand, timeoutsOf, wireOfHand } from "./hand-schema.ts";
import type { AddPath } from "./route.ts";
import { bare, withBody, withQuery } from "./route.ts";

export function addHands(add: AddPath, door: Door): void {
  const ids = { hand: "hand" } as const;
  const answer = Hand;
  add("/v1/hands", {
    post: withBody({
      id: "hands.create",
      summary: "Register a hand: its server is asked for its tools, and they are approved as they are",
      body: HandCreate,
      answer,
      handle: (call, body) => registerHand(door, call, body),
    }),
    get: withQuery({
      id: "hands.list",
      summary: "List hands, newest first, with the names of their tools",
      query: HandList,
      answer: pageOf(HandListed),
      handle: (call, query) => listHands(door, call, query),
    }),
  });
  const updating = { id: "hands.update", summary: "Update a hand; another address is another server, and is asked anew", body: HandUpdate, answer };
  add(
    "/v1/hands/:hand",
    {
      get: bare({ id: "hands.retrieve", summary: "Retrieve a hand", answer, handle: (call) => retrieveHand(door, call, call.id("hand")) }),
      post: withBody({ ...updating, handle: (call, { value }) => update(door, call, call.id("hand"), value) }),
      delete: bare({
        id: "hands.delete",
        summary: "Remove a hand",
        answer: Deleted("hand_deleted"),
        handle: (call) => removeHand(door, call, call.id("hand")),
      }),
    },
    ids,
  );
  const checking = { id: "hands.check", summary: "Ask a hand's server now, and hold back what differs from what was approved", answer };
  add(
    "/v1/hands/:hand/check",
    { post: bare({ ...checking, handle: async (call) => wireOfHand(await door.registry.check(call.principal.workspace, call.id("hand"))) }) },
    ids,
  );
  const approving = { id: "hands.approve", summary: "Approve tools that are held back, as they are shown", body: HandApprove, answer };
  add(
    "/v1/hands/:hand/approve",
    {
      post: withBody({
        ...approving,
        handle: async (call, { value }) => {
          const { workspace, name: by } = call.principal;
          return wireOfHand(await door.registry.approve(workspace, call.id("hand"), value.tools ?? null, by));
        },
      }),
    },
    ids,
  );
}

export async function registerHand(door: Door, call: Asker, { value, given }: Body<HandCreate>): Promise<z.infer<typeof Hand>> {
  const vault_ids = [...new Set(value.vault_ids ?? [])];
  await checkVaults(door, call, vault_ids);
  const config = {
    name: value.name,
    description: value.description ?? "",
    transport: value.transport,
    sharing: value.sharing ?? ("session" as const),
    vault_ids,
    allowed_tools: value.allowed_tools ?? null,
    timeouts: timeoutsOf(value.timeouts),
  };
  const request = { digest: digestOf(canonical(given)), mayBeUnreachable: value.allow_unreachable === true };
  return wireOfHand(await door.registry.register(call.principal.workspace, config, request));
}

export async function listHands(door: Door, call: Asker, query: z.infer<typeof HandList>) {
  const { workspace } = call.principal;
  await door.registry.adopt(workspace);
  const { limit, page } = query;
  const { documents, next_page } = await pageOfDocuments(door, { workspace, kind: HAND_KIND, limit, page, includeArchived: false });
  return { data: documents.map(listedHand), next_page };
}

export const retrieveHand = async (door: Door, call: Asker, name: string): Promise<z.infer<typeof Hand>> =>
  wireOfHand(await door.registry.find(call.principal.workspace, name));

export async function removeHand(door: Door, call: Asker, name: string) {
  await door.registry.remove(call.principal.workspace, name);
  return { id: name, type: "hand_deleted" as const };
}

/** What is left out stays; null is the usual. */
async function update(door: Door, call: Asker, name: string, value: HandUpdate): Promise<z.infer<typeof Hand>> {
  const vault_ids = value.vault_ids === undefined ? undefined : [...new Set(value.vault_ids ?? [])];
  await checkVaults(door, call, vault_ids ?? []);
  const change = {
    ...(value.description !== undefined && { description: value.description ?? "" }),
    ...(value.transport !== undefined && { transport: value.transport }),
    ...(value.sharing !== undefined && { sharing: value.sharing ?? ("session" as const) }),
    ...(vault_ids !== undefined && { vault_ids }),
    ...(value.allowed_tools !== undefined && { allowed_tools: value.allowed_tools }),
    ...(value.timeouts !== undefined && { timeouts: timeoutsOf(value.timeouts) }),
  };
  return wireOfHand(await door.registry.update(call.principal.workspace, name, change, value.allow_unreachable === true));
}

/** Servers of an agent that are registered hands must be registered. `under`: where they stand in the request. */
export async function refuseUnknownHands(
  door: Pick<Door, "registry">,
  workspace: string,
  servers: readonly { readonly url: string }[],
  under = "",
): Promise<void> {
  for (const [index, { url }] of servers.entries()) {
    const name = url === LOG_URL ? undefined : HAND_ADDRESS.exec(url)?.[1];
    if (name !== undefined && !(await door.registry.isKnown(workspace, name)))
      throw invalid(`${under}mcp_servers.${index}.url: no hand named "${name}" is registered`);
  }
}
