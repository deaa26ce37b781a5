// Who we are to authorization servers: the client metadata document of this installation (the vault proxy's `clientDocument` names it).
//
//   Only where the installation has a public https:// address: an authorization server fetches it from there, and it is its own client_id.

import type { Express } from "express";
import { sendJson } from "./call.ts";

const PATH = "/oauth/client.json";

export function publishOAuthClient(app: Express, publicUrl: string | null | undefined): void {
  if (!publicUrl?.startsWith("https://")) return;
  const document = {
    client_id: `${publicUrl}${PATH}`,
    client_name: "Manyhands",
    client_uri: publicUrl,
    // On loopback any port is meant.
    redirect_uris: ["http://127.0.0.1/callback"],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
    application_type: "native",
  };
  app.get(PATH, (_request, response) => {
    response.setHeader("cache-control", "max-age=3600");
    sendJson(response, 200, document);
  });
}
