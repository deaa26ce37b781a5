// Names that change what they mean, at a vault proxy as a program and through the machine's own resolver, which asks a name server of the test's: no route
// goes to an internal address, however the answers turn.

import { spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type DnsDouble, startDns } from "../support/dns-double.ts";
import { startCanary } from "../support/oauth-world.ts";
import { Program, ROOT } from "../support/process.ts";
import { needs } from "../support/real-part.ts";
import { Way } from "../vault-proxy/egress-kit.ts";
import { Caller } from "../vault-proxy/mcp-kit.ts";
import { Signer } from "../vault-proxy/signer.ts";

/** Where the machine's resolver asks; nothing else listens there. */
const NAME_SERVER = "127.53.53.77";
/** Public, and nobody's (ORCHID). */
const PUBLIC = "2001:20::1";
const OPERATORS = "operators.test";
const NOWHERE = "https://nowhere.test/mcp";

needs("unshare")("a name that changes what it means", () => {
  const signer = new Signer();
  let dns: DnsDouble;
  let canary: Awaited<ReturnType<typeof startCanary>>;
  let folder = "";
  let program: Program;
  let url = "";
  let caller: Caller;

  beforeAll(async () => {
    await signer.rotate("k1");
    dns = await startDns(NAME_SERVER, 53);
    canary = await startCanary();
    folder = await mkdtemp(join(tmpdir(), "manyhands-rebinding-"));
    await writeFile(join(folder, "resolv.conf"), `nameserver ${NAME_SERVER}\noptions timeout:2 attempts:1\n`);
    // Only this program sees the other resolv.conf.
    const inside = 'mount --bind "$RESOLV_CONF" /etc/resolv.conf && exec "$NODE" dist/vault-proxy/main.js';
    const env = {
      PATH: process.env.PATH ?? "",
      NODE_ENV: "test",
      NODE: process.execPath,
      RESOLV_CONF: join(folder, "resolv.conf"),
      MANYHANDS_DATA_DIR: folder,
      MANYHANDS_KEYS_DIR: signer.folder,
      MANYHANDS_INTERNAL_HOSTS: OPERATORS,
      MANYHANDS_EGRESS_INTERNAL_HOSTS: OPERATORS,
    };
    program = new Program(spawn("sh", ["-c", 'exec unshare --mount sh -c "$0"', inside], { cwd: ROOT, env, stdio: ["pipe", "pipe", "pipe"] }));
    url = await program.listening();
    caller = new Caller(url, signer);
  });
  afterAll(async () => {
    await program[Symbol.asyncDispose]();
    await canary.close();
    await dns.close();
    signer.remove();
    await rm(folder, { recursive: true, force: true });
  });

  const bearer = (host: string) => caller.bearer(`https://${host}:${canary.port}/mcp`, "canary-bearer-0123456789");
  const way = () => new Way({ url }, signer);
  const ROUTES: readonly [name: string, go: (host: string) => Promise<unknown>][] = [
    ["the MCP route", async (host) => (await caller.send({ target: `https://${host}:${canary.port}/mcp`, vaults: [await bearer(host)] })).refusal],
    [
      "the renewal of a credential",
      async (host) => {
        const vault = await caller.vault();
        await caller.credential(vault, {
          type: "mcp_oauth",
          mcp_server_url: NOWHERE,
          access_token: "canary-access-0123456789",
          // So soon that it is renewed first.
          expires_at: new Date(Date.now() + 20_000).toISOString(),
          refresh: {
            ...{ client_id: "c", refresh_token: "r", token_endpoint_auth: { type: "none" } },
            token_endpoint: `https://${host}:${canary.port}/token`,
          },
        });
        return (await caller.send({ target: NOWHERE, vaults: [vault] })).refusal;
      },
    ],
    [
      "the connect flow",
      async (host) => {
        const asked = { mcp_server_url: `https://${host}:${canary.port}/mcp`, redirect_uri: "http://127.0.0.1:41999/callback" };
        return String(await caller.api("POST", `/v1/vaults/${await caller.vault()}/connect`, asked).catch(String));
      },
    ],
    ["a request of a hand", (host) => way().raw(`GET http://${host}:${canary.port}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)],
    ["a CONNECT of a hand", (host) => way().connect(`${host}:${canary.port}`)],
  ];
  const TURNS: readonly [name: string, lookups: readonly (readonly string[])[]][] = [
    ["internal from the start", [["127.0.0.1"]]],
    ["public when it is looked at, internal ever after", [[PUBLIC], ["127.0.0.1"]]],
    ["internal, then public", [["127.0.0.1"], [PUBLIC]]],
    ["public and internal at once", [[PUBLIC, "127.0.0.1"]]],
    ["an internal address in the other family", [["::1"], ["::ffff:7f00:1"], ["64:ff9b::7f00:1"]]],
    ["the address of everything here", [["0.0.0.0"], ["::"]]],
  ];

  // At once: an address that is nobody's takes its time to say so.
  test.concurrent.each(ROUTES)("leads nowhere by %s", async (route, go) => {
    const tried = async ([turn, lookups]: (typeof TURNS)[number]) => {
      const host = `t${route.length}-${turn.replaceAll(/\W/g, "")}.test`;
      dns.tell(host, ...lookups);
      for (const _ of lookups) expect(String(await go(host)), turn).toMatch(/refused|unreachable|internal|can't be|not_refreshed/);
      expect(dns.asked(host), turn).toBeGreaterThanOrEqual(lookups.length);
    };
    await Promise.all(TURNS.map(tried));
    expect(canary.visits()).toBe(0);
  });

  test("and the same name server leads there, where the operator listed the name", async () => {
    dns.tell(OPERATORS, ["127.0.0.1"]);
    let visits = 0;
    for (const [route, go] of ROUTES) {
      await go(OPERATORS);
      expect(canary.visits(), route).toBeGreaterThan(visits);
      visits = canary.visits();
    }
  });
});
