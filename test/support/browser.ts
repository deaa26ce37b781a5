// A real Chromium for tests, driven over the DevTools protocol by a pipe: no port is open, and the browser ends with its pipe.
//
//   X1  Every command and every wait has a deadline.
//   X2  A context is a browser of its own: no cookie of another one.
//   X3  What a page reports as broken (exceptions, refused by its policy) is kept, so that a test can say that there was none.

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable, Writable } from "node:stream";
import { until } from "./until.ts";

const START_MS = 60_000;
const COMMAND_MS = 30_000;
const CLOSE_MS = 10_000;
const SIZE = { width: 900, height: 800 };

const FLAGS = [
  "--headless",
  "--remote-debugging-pipe",
  "--disable-gpu",
  "--disable-quic",
  "--disable-dev-shm-usage",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  `--window-size=${SIZE.width},${SIZE.height}`,
];

type Fields = Readonly<Record<string, unknown>>;
interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Fields;
  readonly result?: Fields;
  readonly error?: { readonly message: string };
  readonly sessionId?: string;
}
interface Waiting {
  readonly resolve: (result: Fields) => void;
  readonly reject: (error: Error) => void;
}

export class Browser {
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly #waiting = new Map<number, Waiting>();
  readonly #pages = new Map<string, Page>();
  #ids = 0;
  #text = "";
  #stderr = "";

  private constructor(child: ChildProcess, folder: string) {
    this.#child = child;
    this.#folder = folder;
    (child.stdio[4] as Readable).setEncoding("utf8").on("data", (part: string) => this.#read(part));
    child.stderr?.on("data", (part: Buffer) => (this.#stderr = (this.#stderr + part.toString()).slice(-2_000)));
    child.once("close", () => this.#fail(new Error(`Chromium has ended. ${this.#stderr}`)));
    child.once("error", (error) => this.#fail(error));
    (child.stdio[3] as Writable).on("error", (error) => this.#fail(error));
  }

  static async launch(): Promise<Browser> {
    const folder = await mkdtemp(join(tmpdir(), "manyhands-browser-"));
    const asRoot = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
    const child = spawn("chromium", [...FLAGS, ...asRoot, `--user-data-dir=${folder}`], {
      env: { PATH: process.env.PATH ?? "", HOME: folder },
      stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"],
      // A group of its own: its helpers end with it.
      detached: true,
    });
    const browser = new Browser(child, folder);
    await browser.command("Browser.getVersion", {}, undefined, START_MS);
    return browser;
  }

  /** A page in a context of its own. X2 */
  async open(url: string): Promise<Page> {
    const { browserContextId } = await this.command("Target.createBrowserContext", {});
    const { targetId } = await this.command("Target.createTarget", { url: "about:blank", browserContextId, ...SIZE });
    const { sessionId } = await this.command("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, String(sessionId));
    this.#pages.set(page.id, page);
    for (const domain of ["Page", "Runtime", "Log"]) await page.command(`${domain}.enable`);
    await page.goto(url);
    return page;
  }

  /** X1 */
  command(method: string, params: Fields, sessionId?: string, timeoutMs = COMMAND_MS): Promise<Fields> {
    this.#ids += 1;
    const id = this.#ids;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => settle(() => reject(new Error(`Chromium did not answer ${method} within ${timeoutMs} ms. ${this.#stderr}`))),
        timeoutMs,
      );
      const settle = (doing: () => void) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        doing();
      };
      this.#waiting.set(id, { resolve: (result) => settle(() => resolve(result)), reject: (error) => settle(() => reject(error)) });
      (this.#child.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, ...(sessionId !== undefined && { sessionId }) })}\0`);
    });
  }

  async close(): Promise<void> {
    const { pid } = this.#child;
    if (pid !== undefined && this.#child.exitCode === null && this.#child.signalCode === null) {
      const gone = new Promise<void>((resolve) => this.#child.once("close", () => resolve()));
      this.command("Browser.close", {}).catch(() => {}); // It may be gone before it answers.
      const kill = setTimeout(() => process.kill(-pid, "SIGKILL"), CLOSE_MS);
      await gone;
      clearTimeout(kill);
    }
    await rm(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  #read(part: string): void {
    this.#text += part;
    for (let end = this.#text.indexOf("\0"); end >= 0; end = this.#text.indexOf("\0")) {
      const message = JSON.parse(this.#text.slice(0, end)) as Message;
      this.#text = this.#text.slice(end + 1);
      const waiting = this.#waiting.get(message.id ?? 0);
      if (message.error) waiting?.reject(new Error(`Chromium: ${message.error.message}`));
      else if (message.id !== undefined) waiting?.resolve(message.result ?? {});
      else this.#pages.get(message.sessionId ?? "")?.hear(message.method ?? "", message.params ?? {});
    }
  }

  #fail(error: Error): void {
    for (const { reject } of [...this.#waiting.values()]) reject(error);
  }
}

/** Keys that tests press, as the protocol wants them. */
const KEYS = {
  Enter: { code: "Enter", windowsVirtualKeyCode: 13, text: "\r" },
  Escape: { code: "Escape", windowsVirtualKeyCode: 27 },
  Tab: { code: "Tab", windowsVirtualKeyCode: 9 },
} as const;

export class Page {
  readonly id: string;
  /** X3 */
  readonly problems: string[] = [];
  readonly #browser: Browser;
  #loads = 0;

  constructor(browser: Browser, id: string) {
    this.#browser = browser;
    this.id = id;
  }

  command(method: string, params: Fields = {}): Promise<Fields> {
    return this.#browser.command(method, params, this.id);
  }

  async goto(url: string): Promise<void> {
    await this.#loading(() => this.command("Page.navigate", { url }));
  }

  async reload(): Promise<void> {
    await this.#loading(() => this.command("Page.reload"));
  }

  /** The value of an expression in the page; promises are waited for. */
  async evaluate(expression: string): Promise<unknown> {
    const { result, exceptionDetails } = await this.command("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (exceptionDetails) throw new Error(`In the page: ${JSON.stringify(exceptionDetails)}`);
    return (result as Fields).value;
  }

  /** Clicks the middle of the first element that fits, as a mouse does: what lies over it gets the click. */
  async click(selector: string): Promise<void> {
    const place = (await until(
      () =>
        this.evaluate(`(() => {
          const element = document.querySelector(${JSON.stringify(selector)});
          if (!element || element.disabled) return null;
          element.scrollIntoView({ block: "nearest" });
          const { left, top, width, height } = element.getBoundingClientRect();
          return { x: left + width / 2, y: top + height / 2 };
        })()`),
      { timeoutMs: COMMAND_MS, what: `${selector} that can be clicked` },
    )) as { x: number; y: number };
    for (const type of ["mousePressed", "mouseReleased"])
      await this.command("Input.dispatchMouseEvent", { type, ...place, button: "left", clickCount: 1 });
  }

  /** Types text where the focus is. */
  async type(text: string): Promise<void> {
    await this.command("Input.insertText", { text });
  }

  async press(key: keyof typeof KEYS): Promise<void> {
    for (const type of ["keyDown", "keyUp"]) await this.command("Input.dispatchKeyEvent", { type, key, ...KEYS[key] });
  }

  async screenshot(file: string): Promise<void> {
    const { data } = await this.command("Page.captureScreenshot", { format: "png" });
    await writeFile(file, Buffer.from(String(data), "base64"));
  }

  hear(method: string, params: Fields): void {
    if (method === "Page.loadEventFired") this.#loads += 1;
    if (method === "Runtime.exceptionThrown") this.problems.push(JSON.stringify(params.exceptionDetails));
    const entry = params.entry as { source?: string; level?: string; text?: string } | undefined;
    // Requests that fail are part of what tests do.
    if (method === "Log.entryAdded" && entry?.level === "error" && entry.source !== "network") this.problems.push(entry.text ?? "");
  }

  async #loading(doing: () => Promise<unknown>): Promise<void> {
    const before = this.#loads;
    await doing();
    await until(() => this.#loads > before, { timeoutMs: COMMAND_MS, what: "a loaded page" });
  }
}
