// The door `/mcp/sessions/{id}`: speaks for the hands of one session, with a key that is good for nothing else.

import type { Express } from "express";
import type { Door } from "../../http/call.ts";
import type { HandsKeysGiven } from "../../http/hands-key.ts";
import { McpDoor, type McpDoorOptions, type McpSettings } from "../door.ts";
import { makeEnter } from "./enter.ts";
import { sessionHandsSurface } from "./surface.ts";

const PATH = "/mcp/sessions";

export type SessionHandsOptions = McpSettings &
  Pick<HandsKeysGiven, "keys"> & { readonly door: Door } & Pick<McpDoorOptions, "authenticate" | "bodies" | "keepAliveMs">;

export function openSessionHands(app: Express, { door, keys, ...options }: SessionHandsOptions): McpDoor {
  const { store, log } = door;
  const enter = makeEnter({ store, authenticate: options.authenticate, keys });
  // Nobody comes in here without a key, and no token of another server opens it.
  const mcp = new McpDoor({ ...options, isOpen: false, issuer: null, store, log, path: PATH, surface: sessionHandsSurface(door), enter });
  app.all(`${PATH}/:id`, (request, response) => mcp.serve(request, response));
  return mcp;
}
