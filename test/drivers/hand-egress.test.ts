// The way out of real containers, through a vault proxy that is a program of its own: what programs in a hand reach, and what they never see.

import { createHash } from "node:crypto";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Sandbox } from "../../hands/sandbox.ts";
import { type Fence, mint, type SessionId } from "../../session-store/ids.ts";
import { FileVault } from "../../vault-proxy/drivers/file/driver.ts";
import { ensureImage, IMAGE_MS, makeRig, type Rig } from "../support/docker.ts";
import { freePort } from "../support/free-port.ts";
import { type Program, startProgram } from "../support/process.ts";
import { proves } from "../support/proves.ts";
import { needs } from "../support/real-part.ts";
import { until } from "../support/until.ts";
import { type Host, outsideAuthority, putVault, startHost } from "../vault-proxy/egress-kit.ts";
import { Signer } from "../vault-proxy/proxy.ts";

const CALL_MS = 30_000;
const SECRET = "canary-9b1f/44+env";
/** Everything of a test's is on loopback, which programs do not ask a proxy for. */
const TEST_SHELL = "export no_proxy= NO_PROXY=";

needs("docker")("the way out of a container", () => {
  const signer = new Signer();
  const outside = outsideAuthority("localhost", "127.0.0.1");
  const came: { host: string; method: string; url: string; authorization: string; body: string }[] = [];
  let rig: Rig;
  let data: string;
  let vaultPort: number;
  let vault: Program;
  let vaultId: string;
  let plain: Host;
  let api: Host;
  let other: Host;
  let canary: Host;
  /** Answers of `/slow` that wait to be ended. */
  const slow: ServerResponse[] = [];

  const handle = (host: string) => (req: IncomingMessage, res: ServerResponse) => {
    let body = "";
    req.on("data", (piece) => (body += piece));
    req.on("end", () => {
      const seen = { host, method: req.method ?? "", url: req.url ?? "", authorization: req.headers.authorization ?? "", body };
      came.push(seen);
      if (req.url === "/slow") {
        slow.push(res.writeHead(200, { "content-length": "1000000" }));
        return void res.write("begun");
      }
      if (req.url?.startsWith("/repo") && seen.authorization === "") return void res.writeHead(401, { "www-authenticate": "Basic realm=x" }).end();
      if (req.url === "/gzip") return void res.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(JSON.stringify(seen)));
      res.end(JSON.stringify(seen));
    });
  };

  const startVault = () =>
    startProgram("vault-proxy/main", {
      env: {
        MANYHANDS_DATA_DIR: data,
        MANYHANDS_KEYS_DIR: signer.folder,
        MANYHANDS_VAULT_PORT: String(vaultPort),
        MANYHANDS_EGRESS_INTERNAL_HOSTS: `127.0.0.1:${plain.port},localhost:${api.port},127.0.0.1:${other.port}`,
        NODE_EXTRA_CA_CERTS: join(data, "outside.pem"),
      },
    });

  beforeAll(async () => {
    await ensureImage();
    await signer.rotate("one");
    data = await mkdtemp(join(tmpdir(), "hand-egress-"));
    await writeFile(join(data, "outside.pem"), outside.certificate);
    plain = await startHost(handle("plain"));
    api = await startHost(handle("api"), outside.of.localhost);
    other = await startHost(handle("other"), outside.of["127.0.0.1"]);
    canary = await startHost(handle("canary"));
    const folder = join(data, "vault");
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const store = await FileVault.open({ folder, keys: { type: "file", path: join(folder, "master.key"), isOwn: true } });
    vaultId = await putVault(store, [{ name: "API_TOKEN", value: SECRET, hosts: ["localhost"] }]);
    await store.close();
    vaultPort = await freePort();
    vault = startVault();
    await vault.logged("process.listening");
    rig = await makeRig({ vaultUrl: `http://127.0.0.1:${vaultPort}` });
  }, IMAGE_MS);
  afterAll(async () => {
    await rig.clean();
    vault.kill();
    await vault.exit();
    await Promise.all([plain, api, other, canary].map((host) => host.close()));
    signer.remove();
    await rm(data, { recursive: true, force: true });
  });

  /** A session's sandbox, its environment's networking, and what its commands print. */
  async function hand(network: object | null, vaults: readonly string[] = []) {
    const session = mint("sesn") as SessionId;
    if (network !== null) {
      const text = JSON.stringify(network);
      const claims = { sub: session, vaults, workspace: "default", use: ["egress"], network: createHash("sha256").update(text).digest("base64url") };
      rig.driver.admit?.({ session, fence: 1 as Fence }, { grant: await signer.sign(claims), network: text });
    }
    const sandbox: Sandbox = rig.driver.open(await rig.folder(), false, session);
    const bash = async (command: string): Promise<string> => {
      const outcome = await sandbox.run({
        id: `${Math.random()}`,
        tool: "bash",
        input: { command: `${TEST_SHELL}\n${command}`, timeout_ms: CALL_MS },
      });
      if (outcome.type !== "done") throw new Error(outcome.reason);
      return outcome.content.map((block) => (block.type === "text" ? block.text : "")).join("");
    };
    /** What each request came to: the body of its answer, or what the program was told instead. */
    const fetch = async (asked: readonly object[], before = "true"): Promise<string[]> => {
      const said = await bash(`${before}\n${python(FETCH.replace("ASKED", JSON.stringify(asked).replaceAll("\\", "\\\\")))}`);
      return said.split("\n").map((line) => String(JSON.parse(line)));
    };
    return { bash, fetch };
  }
  const limited = (...hosts: string[]) => ({ type: "limited", hosts, package_managers: false });
  let first: Awaited<ReturnType<typeof hand>>;

  proves(
    "egress:allowed",
    "programs reach what the environment allows by HTTP and HTTPS, and nothing else",
    async () => {
      first = await hand(limited(`127.0.0.1:${plain.port}`, `127.0.0.1:${other.port}`, `localhost:${canary.port}`));
      const asked = [
        `http://127.0.0.1:${plain.port}/a`,
        `https://127.0.0.1:${other.port}/b`,
        `http://127.0.0.1:${canary.port}/`,
        `https://localhost:${api.port}/`,
        // Allowed by the environment, and internal: the operator did not list it.
        `http://localhost:${canary.port}/`,
      ];
      const trust = `cat > outside.pem <<'END'\n${outside.certificate}END\nexport SSL_CERT_FILE=$PWD/outside.pem`;
      const answers = await first.fetch(
        asked.map((url) => ({ url })),
        trust,
      );
      expect(answers.slice(0, 2).map((text) => JSON.parse(text))).toMatchObject([
        { host: "plain", url: "/a" },
        { host: "other", url: "/b" },
      ]);
      expect(answers.slice(2)).toEqual([
        expect.stringContaining("403 the environment's networking does not allow this host and port"),
        expect.stringContaining("403 the environment's networking does not allow this host and port (localhost:"),
        expect.stringContaining("403 an internal address, which hands do not reach"),
      ]);
      expect(canary.seen).toEqual([]);
    },
    2 * CALL_MS,
  );

  it(
    "a vault proxy that is killed in the middle of a transfer is an error for the program, and its next request works",
    async () => {
      const url = `http://127.0.0.1:${plain.port}`;
      const before = slow.length;
      const reading = first.fetch([{ url: `${url}/slow` }]);
      await until(() => slow.length > before, { timeoutMs: CALL_MS });
      vault.kill();
      await vault.exit();
      expect((await reading)[0]).toContain("IncompleteRead");
      expect((await first.fetch([{ url: `${url}/while` }]))[0]).toContain("502 the vault proxy can't be reached");
      vault = startVault();
      await vault.logged("process.listening");
      expect(JSON.parse((await first.fetch([{ url: `${url}/after` }]))[0] ?? "")).toMatchObject({ url: "/after" });
    },
    3 * CALL_MS,
  );

  it(
    "a container whose environment lets nothing out has no proxy and no door",
    async () => {
      const { bash } = await hand(null);
      const connecting = `node -e 'require("net").connect(3128, "127.0.0.1").on("error", () => {}).on("close", () => console.log("closed"))'`;
      // The test's own two names are there.
      expect(await bash(`env | grep -ic proxy; ls -A /run/manyhands; ${connecting}`)).toBe("2\nclosed");
    },
    2 * CALL_MS,
  );

  it(
    "a hand holds a placeholder: the credential is put in on its own host alone, masked in what comes back, and nowhere in the container",
    async () => {
      const network = { type: "unrestricted" };
      const one = await hand(network, [vaultId]);
      const two = await hand(network, [vaultId]);
      const placeholder = await one.bash("printf %s $API_TOKEN");
      const foreign = await two.bash("printf %s $API_TOKEN");
      for (const each of [placeholder, foreign]) expect(each).toMatch(/^mhenv_[0-9a-f]{32}$/);
      expect(placeholder).not.toBe(foreign);

      const home = `https://localhost:${api.port}`;
      const from = came.length;
      const said = await one.fetch([
        { url: `${home}/`, headers: { authorization: `Bearer ${placeholder}` } },
        { url: `${home}/gzip`, headers: { authorization: `Bearer ${placeholder}` } },
        { url: `${home}/json`, headers: { "content-type": "application/json" }, data: JSON.stringify({ k: placeholder }) },
        { url: `http://127.0.0.1:${plain.port}/`, headers: { authorization: placeholder } },
        { url: `${home}/`, headers: { authorization: foreign } },
      ]);
      const masked = "*".repeat(SECRET.length);
      expect(said.slice(0, 3).map((text) => JSON.parse(text))).toMatchObject([
        { host: "api", authorization: `Bearer ${masked}` },
        { host: "api", authorization: `Bearer ${masked}` },
        { host: "api" },
      ]);
      expect(came.slice(from).map(({ host, authorization, body }) => [host, authorization || body])).toEqual([
        ["api", `Bearer ${SECRET}`],
        ["api", `Bearer ${SECRET}`],
        ["api", JSON.stringify({ k: SECRET })],
        ["plain", placeholder],
        ["api", foreign],
      ]);
      await one.bash(`GIT_TERMINAL_PROMPT=0 git ls-remote "https://me:$API_TOKEN@localhost:${api.port}/repo" 2>&1`);
      expect(came.at(-1)?.authorization).toBe(`Basic ${Buffer.from(`me:${SECRET}`).toString("base64")}`);

      const odd = ["localhost.", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "u@127.0.0.1", "127.0.0.1"].map((host) => `${host}:${canary.port}`);
      const lines = [...odd, "169.254.169.254:80", "[fd00:ec2::254]:80"].flatMap((to) => [`CONNECT ${to} HTTP/1.1`, `GET http://${to}/ HTTP/1.1`]);
      const answers = (await one.bash(python(ASK_RAW.replace("LINES", JSON.stringify(lines))))).trim().split("\n");
      expect(answers).toHaveLength(lines.length);
      for (const answer of answers) expect(answer).toMatch(/^HTTP\/1\.1 (400|403|502) /);
      expect(canary.seen).toEqual([]);

      expect(await one.bash(python(SEARCH.replace("SPLIT", SECRET.split("").join("|"))))).toBe("True 0 False");
      expect(vault.lines.filter((line) => JSON.stringify(line).includes(SECRET))).toEqual([]);
    },
    4 * CALL_MS,
  );
});

const python = (text: string): string => `python3 - <<'EOF'\n${text}\nEOF`;

const FETCH = `
import json, urllib.request, urllib.error
for each in json.loads('''ASKED'''):
  request = urllib.request.Request(each['url'], headers=each.get('headers', {}), data=each['data'].encode() if 'data' in each else None)
  try: said = urllib.request.urlopen(request, timeout=20).read().decode()
  except urllib.error.HTTPError as error: said = f'{error.code} {error.reason}'
  except Exception as error: said = f'{type(error).__name__} {error}'
  print(json.dumps(said))
`;

const ASK_RAW = `
import json, socket
for line in json.loads('''LINES'''):
  s = socket.create_connection(('127.0.0.1', 3128)); s.settimeout(20)
  s.sendall((line + '\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n').encode())
  print(s.recv(4096).decode().split('\\r\\n')[0])
`;

/** Looks for a text that is not in the search itself: in files, and in what the kernel tells of every process. */
const SEARCH = `
import base64, glob, os
secret = 'SPLIT'.replace('|', '').encode()
wanted = [secret, base64.b64encode(secret)[:-4], secret.hex().encode()]
roots = ['/workspace', '/run', '/tmp', '/mnt', '/etc']
files = [os.path.join(folder, name) for root in roots for folder, _, names in os.walk(root) for name in names]
files += glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline')
looked = found = 0
for path in files:
  try: text = open(path, 'rb').read()
  except OSError: continue
  looked += 1
  found += any(each in text for each in wanted)
print(looked > 10, found, any(each.decode() in str(os.environ) for each in wanted))
`;
