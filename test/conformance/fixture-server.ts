// One replica of a gateway-like program that serves the conformance fixture through our door, over the store that its settings name.

import { createServer } from "node:http";
import { pino } from "pino";
import { makeAuthenticate } from "../../gateway/authenticate.ts";
import { Bodies } from "../../gateway/http/body.ts";
import { harden, listen } from "../../gateway/listen.ts";
import { McpDoor } from "../../gateway/mcp/door.ts";
import { openStore } from "../../session-store/open.ts";
import { fixtureSurface } from "./fixture.ts";

const KEEP_ALIVE_MS = 1_000;

const { REDIS_URL: redisUrl, DATA_DIR: dataDir = ".manyhands", API_KEYS: apiKeys = "" } = process.env;
const log = pino({ base: { role: "fixture" } }, process.stdout);
const store = await openStore({ ...(redisUrl !== undefined && { redisUrl }), dataDir, leaseMs: 30_000, log });
let url = "";
const door = new McpDoor({
  path: "/mcp",
  surface: fixtureSurface(),
  store,
  log,
  authenticate: makeAuthenticate(apiKeys.split(",").filter(Boolean)),
  bodies: new Bodies(),
  keepAliveMs: KEEP_ALIVE_MS,
  publicUrl: null,
  ownUrl: () => url,
  isLoopback: true,
  issuer: null,
  isOpen: apiKeys === "",
  stateKey: Buffer.alloc(32, 7),
});
const server = createServer((request, response) => void door.serve(request, response));
harden(server);
url = `http://localhost:${await listen(server, "127.0.0.1", 0)}`;
log.info({ url }, "process.listening");
