// A relay in front of a hand host that writes down who asked for what under which fence, and how it was answered: evidence from outside.

import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";
import { z } from "zod";
import { META } from "../../hands/hand.ts";
import type { Faults } from "./checkers.ts";

/** One request of a holder. `arrived` and `answered` are places in one order of events. */
export interface HandAsk {
  readonly session: string;
  readonly fence: number;
  readonly tool: string;
  readonly arrived: number;
  answered: number | null;
  isRefused: boolean;
}

export interface HandRelay {
  readonly url: string;
  readonly asks: readonly HandAsk[];
  close(): Promise<void>;
}

const Holder = z.object({ session: z.string(), fence: z.number() });
const Call = z.object({
  params: z.object({ name: z.string(), arguments: z.unknown(), _meta: z.record(z.string(), z.unknown()).optional() }),
});

export async function startHandRelay(target: string): Promise<HandRelay> {
  const asks: HandAsk[] = [];
  let clock = 0;
  const tick = () => {
    clock += 1;
    return clock;
  };
  const server = createServer((req, res) => {
    relay(target, req, res, (body) => {
      const asked = read(body);
      if (!asked) return () => {};
      const ask: HandAsk = { ...asked, arrived: tick(), answered: null, isRefused: false };
      asks.push(ask);
      return (answer) => {
        ask.answered = tick();
        ask.isRefused = answer.includes('"fenced"');
      };
    }).catch(() => res.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the relay has no port");
  return {
    url: `http://127.0.0.1:${address.port}`,
    asks,
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** Requests under an older fence that were taken though the hand host had answered a newer one before they arrived. M2 */
export function staleAsksOf(asks: readonly HandAsk[]): Faults {
  return overtakenOf(asks)
    .filter((ask) => ask.answered !== null && !ask.isRefused)
    .map(({ session, fence, tool }) => `${tool} of ${session} was taken under fence ${fence}, which was overtaken`);
}

/** Requests that arrived under an older fence than one that was answered before. */
export function overtakenOf(asks: readonly HandAsk[]): readonly HandAsk[] {
  return asks.filter((ask) =>
    asks.some(
      (newer) =>
        newer.session === ask.session && newer.fence > ask.fence && newer.answered !== null && newer.answered < ask.arrived && !newer.isRefused,
    ),
  );
}

function read(body: string): Pick<HandAsk, "session" | "fence" | "tool"> | null {
  const call = Call.safeParse(parse(body));
  if (!call.success) return null;
  const { name, arguments: input, _meta: meta } = call.data.params;
  const holder = Holder.safeParse(
    meta?.[META.session] === undefined
      ? z.object({ holder: z.unknown() }).safeParse(input).data?.holder
      : { session: meta[META.session], fence: meta[META.fence] },
  );
  return holder.success ? { ...holder.data, tool: name } : null;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null; // No call of ours: it is passed on all the same.
  }
}

async function relay(target: string, req: IncomingMessage, res: ServerResponse, note: (body: string) => (answer: string) => void): Promise<void> {
  const pieces: Buffer[] = [];
  for await (const piece of req) pieces.push(piece);
  const body = Buffer.concat(pieces);
  const answered = note(body.toString());
  const onward = request(`${target}${req.url ?? "/"}`, { method: req.method, headers: req.headers });
  res.on("close", () => onward.destroy());
  onward.on("error", () => res.destroy());
  onward.on("response", (answer) => {
    let text = "";
    res.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.on("data", (piece: Buffer) => {
      text += piece.toString();
      res.write(piece);
    });
    answer.on("end", () => {
      answered(text);
      res.end();
    });
    answer.on("error", () => res.destroy());
  });
  onward.end(body);
}
