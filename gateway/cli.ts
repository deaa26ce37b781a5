#!/usr/bin/env node
// The command `manyhands`: one word chooses what this process becomes.

import { pathToFileURL } from "node:url";
import { EXIT_CONFIGURATION, readConfig, SettingError } from "./config.ts";
import { besideOf, entryOf, isRole } from "./roles.ts";
import { version } from "./version.ts";

const USAGE = `usage: manyhands <command>

  start         all programs of one machine: vault proxy, hand host, gateway (and worker, with REDIS_URL)
  gateway       the HTTP API; without REDIS_URL also the worker, over the embedded store
  worker        drives sessions; needs REDIS_URL, MANYHANDS_VAULT_URL and MANYHANDS_HANDS_URL
  hands         the hand host: where tools run
  vault rotate  gives the file vault of a stopped vault proxy a new key
  vault connect U   gives sessions access to the MCP server at U: a person allows it in the browser, and the vault keeps the tokens
  vault-proxy   the only program that holds credentials
  image         makes the image of container sandboxes from this machine's own packages
  mcp [--url U] a bridge for MCP clients that only start programs: standard input and output to the gateway's /mcp
  keys          makes the installation's keys where they are missing, and says in which folder
  status        asks a running gateway whether it is alive and ready
  version       prints the version
  help          prints this

Settings are environment variables; README.md lists them.
`;

await main(process.argv.slice(2));

async function main(words: readonly string[]): Promise<void> {
  const [command = "help", ...rest] = words;
  if (command === "vault" && rest.length === 1 && rest[0] === "rotate") {
    // By its path, as a program: no code of ours is shared with the vault proxy's.
    await import(pathToFileURL(besideOf("vault-proxy", "rotate")).href);
    return;
  }
  if (command === "vault" && rest[0] === "connect") return connectVault(rest.slice(1));
  if (rest.length > 0 && command !== "mcp") return misuse(`"${command}" takes no arguments`);
  await orSettingError(() => run(command, rest));
}

async function connectVault(rest: readonly string[]): Promise<void> {
  const { CONNECT_USAGE, readWords } = await import("./connect/words.ts");
  const words = readWords(rest);
  if (typeof words === "string") {
    process.stderr.write(`manyhands: ${words}\n${CONNECT_USAGE}`);
    process.exitCode = EXIT_CONFIGURATION;
    return;
  }
  await orSettingError(async () => {
    const { ownDoor } = await import("./own-door.ts");
    const { connect } = await import("./connect/command.ts");
    process.exitCode = await connect(await ownDoor(), words, (line) => void process.stdout.write(`${line}\n`));
  });
}

async function orSettingError(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof SettingError)) throw error;
    process.stderr.write(`manyhands: ${error.message}\n`);
    process.exitCode = EXIT_CONFIGURATION;
  }
}

async function run(command: string, rest: readonly string[]): Promise<void> {
  if (isRole(command)) {
    // This process becomes that program: loaded by its path, so that no code of ours is shared with the vault proxy's.
    await import(pathToFileURL(entryOf(command)).href);
    return;
  }
  switch (command) {
    case "start": {
      const { launch } = await import("./launch.ts");
      process.exit(await launch());
      break;
    }
    case "image": {
      const { makeImage } = await import("../hands/image.ts");
      process.exitCode = await makeImage();
      break;
    }
    case "keys": {
      const { ensureKeys } = await import("./keys.ts");
      const { dir } = await ensureKeys(readConfig().keysDir);
      process.stdout.write(`${dir}\n`);
      break;
    }
    case "status": {
      const { status } = await import("./status.ts");
      const { text, isReady } = await status();
      process.stdout.write(text);
      process.exitCode = isReady ? 0 : 1;
      break;
    }
    case "mcp": {
      const url = urlIn(rest);
      if (url === null) return misuse("mcp takes --url and an http:// or https:// address, or nothing");
      const { bridge } = await import("./bridge.ts");
      await bridge(url);
      process.exit(0);
      break;
    }
    case "version":
    case "--version":
      process.stdout.write(`${version()}\n`);
      break;
    case "help":
    case "--help":
    case "-h":
      process.stdout.write(USAGE);
      break;
    default:
      misuse(`there is no command "${command.slice(0, 40)}"`);
  }
}

/** The address that was given; undefined: none was; null: something else was. */
function urlIn(words: readonly string[]): string | undefined | null {
  if (words.length === 0) return undefined;
  const [name, url = "", ...more] = words;
  return name === "--url" && more.length === 0 && /^https?:/.test(url) && URL.canParse(url) ? url : null;
}

function misuse(what: string): void {
  process.stderr.write(`manyhands: ${what}\n${USAGE}`);
  process.exitCode = EXIT_CONFIGURATION;
}
