// What a model's answer says that it took, read in passing.
//
//   U1  Only lines that may speak of usage are parsed; what is too long to be one is passed over. The answer itself is never held back.
//   U2  A stream says its counts more than once, growing: the largest of each counts, so that a cut one counts as far as it came.

import { z } from "zod";

const LINE_CHARS_MAX = 256 * 1024;
const WHOLE_BYTES_MAX = 16 * 1024 * 1024;

const count = z.number().int().min(0).nullish();
const Usage = z.object({
  input_tokens: count,
  output_tokens: count,
  cache_read_input_tokens: count,
  cache_creation_input_tokens: count,
});
const Answer = z.object({ usage: Usage.nullish(), message: z.object({ usage: Usage.nullish() }).nullish() });

/** Tokens. */
export interface Used {
  readonly input: number;
  readonly output: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
}

export class UsageReader {
  readonly #isStream: boolean;
  readonly #whole: Buffer[] = [];
  #wholeBytes = 0;
  #line = "";
  #used: Used = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };

  constructor(contentType: string | undefined) {
    this.#isStream = contentType?.startsWith("text/event-stream") === true;
  }

  get used(): Used {
    return this.#used;
  }

  push(piece: Buffer): void {
    if (this.#isStream) {
      const lines = (this.#line + piece.toString("latin1")).split("\n");
      const last = lines.pop() ?? "";
      // U1
      this.#line = last.length > LINE_CHARS_MAX ? "" : last;
      for (const line of lines) if (line.startsWith("data:") && line.includes('"usage"')) this.#read(line.slice("data:".length));
      return;
    }
    this.#wholeBytes += piece.length;
    if (this.#wholeBytes <= WHOLE_BYTES_MAX) this.#whole.push(piece);
  }

  end(): void {
    if (!this.#isStream && this.#wholeBytes <= WHOLE_BYTES_MAX) this.#read(Buffer.concat(this.#whole).toString("latin1"));
  }

  /** U2 */
  #read(text: string): void {
    let said: unknown;
    try {
      said = JSON.parse(text);
    } catch {
      return; // The client finds that out by itself; here it is only not counted.
    }
    const answer = Answer.safeParse(said);
    const usage = answer.success ? (answer.data.usage ?? answer.data.message?.usage) : null;
    if (!usage) return;
    const { input, output, cacheRead, cacheWrite } = this.#used;
    this.#used = {
      input: Math.max(input, usage.input_tokens ?? 0),
      output: Math.max(output, usage.output_tokens ?? 0),
      cacheRead: Math.max(cacheRead, usage.cache_read_input_tokens ?? 0),
      cacheWrite: Math.max(cacheWrite, usage.cache_creation_input_tokens ?? 0),
    };
  }
}
