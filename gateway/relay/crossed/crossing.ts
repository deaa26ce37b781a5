// Clients of one era at hands of the other: whichever it is, messages are translated as envelopes, and what they carry passes as it is.

import type { Crossing, Exchange, RelaySession } from "../upstream.ts";
import { type CrossedOptions, reasonOf } from "./crossed.ts";
import { HandshakeClients } from "./handshake-client.ts";
import { StatelessClients } from "./stateless-client.ts";

const SWEEP_MS = 60_000;

/** `answerMs`: how long a parked call waits for its client. */
export function makeCrossing(options: CrossedOptions & { readonly answerMs?: number }): Crossing {
  const handshake = new HandshakeClients(options);
  const stateless = new StatelessClients(options);
  let isSweeping = false;
  const sweep = async () => {
    if (isSweeping) return;
    isSweeping = true;
    try {
      await stateless.sweep();
    } catch (error) {
      options.log.warn({ reason: reasonOf(error) }, "mcp.not_swept");
    } finally {
      isSweeping = false;
    }
  };
  const timer = setInterval(() => void sweep(), SWEEP_MS).unref();
  return {
    serve: (exchange: Exchange) => (exchange.era === "handshake" ? handshake.serve(exchange) : stateless.serve(exchange)),
    async ended(session: RelaySession) {
      handshake.ended(session);
    },
    async close() {
      clearInterval(timer);
      handshake.close();
      await stateless.close();
    },
  };
}
