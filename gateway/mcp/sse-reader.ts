// Reading server-sent events, piece by piece.

import { StringDecoder } from "node:string_decoder";

const EVENT_CHARS_MAX = 64 * 1024 * 1024;

export class SseReader {
  /** The id of the last event that had one. */
  place: string | null = null;
  readonly #hear: (data: string) => void;
  readonly #decoder = new StringDecoder("utf8");
  #rest = "";

  /** `hear` gets the data of each event that has any. */
  constructor(hear: (data: string) => void) {
    this.#hear = hear;
  }

  take(chunk: Uint8Array): void {
    this.#rest += this.#decoder.write(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    if (this.#rest.length > EVENT_CHARS_MAX) throw new Error("an event is over the limit");
    const events = this.#rest.split(/\r?\n\r?\n/);
    this.#rest = events.pop() ?? "";
    for (const event of events) this.#read(event);
  }

  #read(event: string): void {
    const data: string[] = [];
    for (const line of event.split(/\r?\n/)) {
      if (line.startsWith("id:")) this.place = line.slice(3).trim();
      else if (line.startsWith("data:")) data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
    }
    const text = data.join("\n");
    if (text.trim() !== "") this.#hear(text);
  }
}
