// Now and then the vault proxy is told which sessions, of those that it keeps repositories for, are no more (K3 of repository-tokens.ts).

import type { Logger } from "pino";
import { mint } from "../session-store/ids.ts";
import { Refusal } from "../session-store/refusal.ts";
import type { SessionStore } from "../session-store/store.ts";
import { WORKSPACE } from "./authenticate.ts";
import { sweepRepositories } from "./repository-tokens.ts";
import type { VaultProxy } from "./vault-proxy.ts";

const FIRST_MS = 120_000;
const SWEEP_MS = 1_800_000;

/** Gives what ends it. Every gateway may do it: what one removed, another finds gone. */
export function sweepNowAndThen(proxy: VaultProxy, store: Pick<SessionStore, "getSession">, log: Logger): () => void {
  const sweep = async (): Promise<void> => {
    const asking = { principal: { workspace: WORKSPACE, name: "repository-sweep" }, requestId: mint("req") };
    try {
      const count = await sweepRepositories(proxy, store, asking);
      if (count > 0) log.info({ count }, "repositories.swept");
    } catch (error) {
      // The next one may be luckier; nothing waits for it.
      if (!(error instanceof Refusal)) throw error;
      log.warn({ code: error.code, detail: error.detail }, "repositories.not_swept");
    }
    timer = setTimeout(() => void sweep(), SWEEP_MS).unref();
  };
  let timer = setTimeout(() => void sweep(), FIRST_MS).unref();
  return () => clearTimeout(timer);
}
