// The doors of hands at the HTTP server, with the metadata that says how to get a token for each.

import type { Express } from "express";
import { sendJson } from "../http/call.ts";
import type { Access } from "../mcp/access.ts";
import type { McpSettings } from "../mcp/door.ts";
import { makeCrossing } from "./crossed/crossing.ts";
import { HANDS_PATH, HandRelay, type RelayOptions } from "./door.ts";

type Given = Omit<RelayOptions, "access" | "baseUrl" | "reach" | "crossing"> & Pick<McpSettings, "publicUrl" | "ownUrl" | "isLoopback" | "stateKey">;

export function openRelay(app: Express, access: Access, given: Given): HandRelay {
  const crossing = makeCrossing(given);
  const relay = new HandRelay({ ...given, access, reach: given, baseUrl: () => given.publicUrl ?? given.ownUrl(), crossing });
  app.all(`${HANDS_PATH}/:name`, (request, response) => relay.serve(request, response, String(request.params.name)));
  app.get(/^\/\.well-known\/oauth-protected-resource\/(?:.+\/)?mcp\/hands\/[^/]+$/, (request, response, next) => {
    const own = relay.accessOf(request.path.slice(request.path.lastIndexOf("/") + 1));
    const metadata = request.path === own.metadataPath() ? own.metadata() : null;
    if (!metadata) return next();
    response.setHeader("access-control-allow-origin", "*");
    sendJson(response, 200, metadata);
  });
  return relay;
}
