// Server-sent events, read piece by piece as the HTML standard says: any end of line, a piece may end anywhere.

export interface ServerEvent {
  readonly type: string;
  readonly data: string;
}

export class SseParser {
  readonly #hear: (event: ServerEvent) => void;
  readonly #charsMax: number;
  readonly #tooLong: () => Error;
  /** Drops a byte order mark at the beginning. */
  readonly #decoder = new TextDecoder();
  /** Of the line that is not over yet. */
  #pieces: string[] = [];
  #data: string[] = [];
  #type = "";
  #chars = 0;
  #hadReturn = false;

  /** An event over `charsMax` is the error that `tooLong` gives. */
  constructor(hear: (event: ServerEvent) => void, charsMax: number, tooLong: () => Error) {
    this.#hear = hear;
    this.#charsMax = charsMax;
    this.#tooLong = tooLong;
  }

  take(chunk: Uint8Array): void {
    const decoded = this.#decoder.decode(chunk, { stream: true });
    if (decoded === "") return;
    // A carriage return that ended the piece before may have been half of a line's end.
    const text = this.#hadReturn && decoded.startsWith("\n") ? decoded.slice(1) : decoded;
    this.#hadReturn = decoded.endsWith("\r");
    const lines = text.split(/\r\n|\r|\n/);
    const rest = lines.pop() ?? "";
    for (const line of lines) {
      this.#grow(line.length);
      this.#line(this.#pieces.length === 0 ? line : this.#pieces.join("") + line);
      this.#pieces = [];
    }
    this.#grow(rest.length);
    if (rest !== "") this.#pieces.push(rest);
  }

  #grow(chars: number): void {
    this.#chars += chars;
    if (this.#chars > this.#charsMax) throw this.#tooLong();
  }

  #line(line: string): void {
    if (line === "") {
      this.#over();
      return;
    }
    const colon = line.indexOf(":");
    // What begins with a colon is a comment; it counts for no event.
    if (colon === 0) {
      this.#chars -= line.length;
      return;
    }
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#type = value;
  }

  #over(): void {
    const [type, data] = [this.#type || "message", this.#data];
    this.#data = [];
    this.#type = "";
    this.#chars = 0;
    if (data.length > 0) this.#hear({ type, data: data.join("\n") });
  }
}
