// The doors of hands at the HTTP server, with the metadata that says how to get a token for each.

import type { RequestListener } from "node:http";
import type { Express } from "express";
import { mint } from "../../session-store/ids.ts";
import { sendJson } from "../http/call.ts";
import type { Access } from "../mcp/access.ts";
import type { McpSettings } from "../mcp/door.ts";
import { makeCrossing } from "./crossed/crossing.ts";
import { HANDS_PATH, HandRelay, type RelayOptions } from "./door.ts";

type Given = Omit<RelayOptions, "access" | "baseUrl" | "reach" | "crossing"> & Pick<McpSettings, "publicUrl" | "ownUrl" | "isLoopback" | "stateKey">;

export function openRelay(app: Express, access: Access, given: Given): HandRelay {
  const crossing = makeCrossing(given);
  const relay = new HandRelay({ ...given, access, reach: given, baseUrl: () => given.publicUrl ?? given.ownUrl(), crossing });
  app.get(/^\/\.well-known\/oauth-protected-resource\/(?:.+\/)?mcp\/hands\/[^/]+$/, (request, response, next) => {
    const own = relay.accessOf(request.path.slice(request.path.lastIndexOf("/") + 1));
    const metadata = request.path === own.metadataPath() ? own.metadata() : null;
    if (!metadata) return next();
    response.setHeader("access-control-allow-origin", "*");
    sendJson(response, 200, metadata);
  });
  return relay;
}

const PREFIX = `${HANDS_PATH}/`;

/** The requests that hands are used by go to their doors straight away; all others to the application. */
export function beside(app: Express, relay: HandRelay): RequestListener {
  return (request, response) => {
    const { url = "/" } = request;
    if (!url.startsWith(PREFIX)) return void app(request, response);
    response.setHeader("request-id", mint("req"));
    const query = url.indexOf("?");
    void relay.serve(request, response, url.slice(PREFIX.length, query < 0 ? url.length : query));
  };
}
