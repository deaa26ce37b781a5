// A raw reader of server-sent events: the bytes as they come, without an SDK in between.

import type { IncomingMessage } from "node:http";
import { request } from "node:http";
import { API_KEY } from "./api.ts";
import { until } from "./until.ts";

export interface Frame {
  readonly id: string | null;
  readonly event: string | null;
  // biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever came.
  readonly data: any;
}

export class FrameReader {
  readonly response: IncomingMessage;
  readonly frames: Frame[] = [];
  readonly comments: string[] = [];
  isEnded = false;
  isCut = false;
  #text = "";

  private constructor(response: IncomingMessage) {
    this.response = response;
    response.setEncoding("utf8");
    response.on("data", (part: string) => this.#read(part));
    response.on("end", () => {
      this.isEnded = true;
    });
    response.on("error", () => {
      this.isCut = true;
    });
  }

  static open(url: string, headers: Record<string, string> = {}): Promise<FrameReader> {
    return new Promise((resolve, reject) => {
      const sent = request(url, { headers: { "x-api-key": API_KEY, ...headers }, agent: false }, (response) => resolve(new FrameReader(response)));
      sent.once("error", reject);
      sent.end();
    });
  }

  /** Waits for a frame of this type, from the place `from` on. */
  next(type: string, from = 0): Promise<Frame> {
    return until(() => this.frames.slice(from).find(({ event }) => event === type));
  }

  get types(): (string | null)[] {
    return this.frames.map(({ event }) => event);
  }

  close(): void {
    this.response.destroy();
  }

  #read(part: string): void {
    this.#text += part;
    for (let end = this.#text.indexOf("\n\n"); end >= 0; end = this.#text.indexOf("\n\n")) {
      const lines = this.#text.slice(0, end).split("\n");
      this.#text = this.#text.slice(end + 2);
      if (lines.every((line) => line.startsWith(":"))) {
        this.comments.push(...lines.map((line) => line.slice(1).trim()));
        continue;
      }
      const field = (name: string) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? null;
      this.frames.push({ id: field("id"), event: field("event"), data: JSON.parse(field("data") ?? "null") });
    }
  }
}
