// Refreshing: one request for new tokens however many ask, in one proxy and on any number of proxies that share the storage.
//
//   F1  In one process everybody who needs a credential's new tokens waits for the same flight.
//   F2  Across processes a lease is written into the credential's record, by compare-and-set, before the authorization server is asked. Who comes
//       second waits and reads again. A lease that nobody gave back ends after its time, counted by the waiter's own clock from when it first saw it
//       (the clocks of two machines need not agree), and then one of the waiters asks, with the token that is stored.
//   F3  New tokens are stored, durably, before anybody uses them; they replace nothing but the tokens that they were bought with. While they can't be
//       stored they are kept here and stored by whoever asks next: nothing is asked for twice.
//   F4  The authorization server's "no" is written down and ends all asking, until a person stores new tokens. Trouble changes nothing that is stored,
//       and is not tried again for a moment.
//   F5  A request for tokens is in the audit before it leaves.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import type { OAuth } from "../api/auth-schema.ts";
import type { Vaults } from "../api/vaults.ts";
import { type Audit, AuditTrouble } from "../audit.ts";
import type { Guard } from "../guard.ts";
import { type Need, needOf, type Why } from "./refresh-state.ts";
import { changeOAuth, type Place, readOAuth, tried } from "./stored.ts";
import { requestTokens, type TokenAnswer, type Tokens } from "./token-request.ts";

export const OAUTH_TIMEOUT_MS = 10_000;
/** A lease outlives the request for tokens by this: long enough to store what it brought. */
const STORE_MS = 10_000;
const POLL_MS_MIN = 40;
const POLL_MS_MAX = 300;
const STORE_TRIES = 3;
const STORE_PAUSE_MS = 200;
const CLOCK_SKEW_MS = 60_000;
const PAUSE_MS_MIN = 2_000;
const PAUSE_MS_MAX = 60_000;
/** Of what is remembered for credentials here: pauses, leases that were seen. The oldest go first. */
const REMEMBERED_MAX = 10_000;
/** Tokens that could not be stored yet. One more credential has to wait. */
const UNSTORED_MAX = 1_000;

/** For whom, in the audit. */
export interface Asker {
  readonly session?: string;
  readonly fence?: number;
  readonly requestId?: string;
}

export type Usable = Exclude<Need, { type: "renew" }> | { readonly type: "later"; readonly reason: "busy" | "failed" | "unstored" | "unaudited" };
export interface Flown {
  readonly usable: Usable;
  /** What the authorization server said, if it was asked. */
  readonly answer: TokenAnswer | null;
}

interface Unstored {
  /** The refresh token that they were bought with. */
  readonly used: string;
  readonly tokens: Tokens;
  readonly at: number;
}

export interface RefresherOptions {
  readonly vaults: Vaults;
  readonly guard: Guard;
  readonly audit: Audit;
  readonly log: Logger;
  /** Other proxies may be at the same storage. */
  readonly isShared: boolean;
  /** How long an authorization server may take. */
  readonly tokenMs: number;
}

export class Refresher {
  readonly #options: RefresherOptions;
  readonly #me = randomUUID();
  readonly #leaseMs: number;
  /** F1 */
  readonly #flights = new Map<string, Promise<Flown>>();
  readonly #unstored = new Map<string, Unstored>();
  readonly #pauses = new Map<string, { until: number; ms: number }>();
  readonly #seen = new Map<string, { id: string; at: number }>();
  readonly #end = new AbortController();

  constructor(options: RefresherOptions) {
    this.#options = options;
    this.#leaseMs = options.tokenMs + STORE_MS;
  }

  /** What to use for a credential; waits for new tokens if it needs them. `auth`: as it was just read. */
  async usable(place: Place, auth: OAuth, why: Why, asker: Asker): Promise<Flown> {
    for (;;) {
      const need = needOf(auth, why, Date.now());
      const isUnstored = this.#unstored.has(place.credential);
      if (need.type !== "renew" && !isUnstored) return { usable: need, answer: null };
      const open = this.#flights.get(place.credential);
      if (open === undefined) break;
      if (need.type === "renew" && need.token !== null && !isUnstored) return { usable: { type: "use", token: need.token }, answer: null };
      const flown = await open;
      // A flight that was for a token which is about to end says nothing of one that was refused, unless it brought another.
      if (why.type === "due" || flown.usable.type !== "use" || flown.usable.token !== why.token) return flown;
    }
    const flight = this.#fly(place, why, asker).finally(() => this.#flights.delete(place.credential));
    this.#flights.set(place.credential, flight);
    return await flight;
  }

  /** Waits for what is under way, within the time that a program has to end. */
  async close(): Promise<void> {
    this.#end.abort(new Error("The vault proxy stops."));
    await Promise.allSettled(this.#flights.values());
  }

  async #fly(place: Place, why: Why, asker: Asker): Promise<Flown> {
    const flown = (usable: Usable, answer: TokenAnswer | null = null): Flown => ({ usable, answer });
    const deadline = performance.now() + this.#leaseMs + STORE_MS;
    for (let waitMs = POLL_MS_MIN; ; waitMs = Math.min(waitMs * 1.5, POLL_MS_MAX)) {
      const auth = await readOAuth(this.#options.vaults, place);
      if (auth === null) return flown({ type: "gone" });
      if (this.#unstored.has(place.credential)) {
        if (!(await this.#storeLate(place, auth))) return flown({ type: "later", reason: "unstored" });
        continue;
      }
      const need = needOf(auth, why, Date.now());
      if (need.type !== "renew") return flown(need);
      const meanwhile: Usable | null = need.token === null ? null : { type: "use", token: need.token };
      if (this.#isPaused(place)) return flown(meanwhile ?? { type: "later", reason: "failed" });
      if (this.#unstored.size >= UNSTORED_MAX) return flown(meanwhile ?? { type: "later", reason: "busy" });
      if (!this.#isHeld(place, auth)) {
        const taken = await this.#take(place, why);
        if (taken !== null) return await this.#renew(place, taken, meanwhile, asker);
        continue;
      }
      if (meanwhile !== null) return flown(meanwhile);
      if (performance.now() >= deadline || this.#end.signal.aborted) return flown({ type: "later", reason: "busy" });
      await sleep(waitMs);
    }
  }

  /** Asks, and stores what came. F3 F4 F5 */
  async #renew(place: Place, auth: OAuth, meanwhile: Usable | null, asker: Asker): Promise<Flown> {
    const { audit, guard, log, tokenMs } = this.#options;
    const { refresh, lease } = auth;
    if (refresh === null || refresh.refresh_token === null || lease === null) throw new Error("a lease was taken for tokens that can't be renewed");
    const giveBack = (patch: Partial<OAuth> = {}) =>
      this.#change(place, (now) => (now.lease?.id === lease.id ? { ...now, ...patch, lease: null } : null));
    try {
      const { workspace, vault, credential } = place;
      await audit.write({ use: "oauth_refresh", ...asker, workspace, vault, credential, origin: new URL(refresh.token_endpoint).origin });
    } catch (error) {
      if (!(error instanceof AuditTrouble)) throw error;
      await tried(giveBack()); // One that can't be given back ends by itself.
      return { usable: meanwhile ?? { type: "later", reason: "unaudited" }, answer: null };
    }
    const startedAt = performance.now();
    // Not cut by a stop: an answer that is thrown away may be the only one that there is.
    const answer = await requestTokens(guard, refresh, AbortSignal.timeout(tokenMs));
    const facts = { credential: place.credential, ms: Math.round(performance.now() - startedAt) };
    switch (answer.type) {
      case "tokens": {
        log.info({ ...facts, isRotated: answer.tokens.refresh !== null }, "credential.refreshed");
        this.#pauses.delete(place.credential);
        this.#unstored.set(place.credential, { used: refresh.refresh_token, tokens: answer.tokens, at: Date.now() });
        const stored = await this.#storeWithin(place);
        return { usable: stored ?? { type: "later", reason: "unstored" }, answer };
      }
      case "refused": {
        log.warn({ ...facts, reason: answer.reason }, "credential.refused");
        const used = refresh.refresh_token;
        const marked = await tried(
          this.#change(place, (now) =>
            now.refresh?.refresh_token === used ? { ...now, refused: answer.reason, lease: now.lease?.id === lease.id ? null : now.lease } : null,
          ),
        );
        // Somebody stored other tokens while we asked with the old ones: theirs count.
        const now = marked === "trouble" ? null : marked;
        if (marked === "trouble") this.#pause(place);
        if (now?.access_token && now.refused === null) return { usable: { type: "use", token: now.access_token }, answer };
        return { usable: now === null && marked !== "trouble" ? { type: "gone" } : { type: "sign_in" }, answer };
      }
      case "trouble": {
        log.warn({ ...facts, reason: answer.reason }, "credential.not_refreshed");
        this.#pause(place);
        await tried(giveBack());
        return { usable: meanwhile ?? { type: "later", reason: "failed" }, answer };
      }
    }
  }

  /** Tries to store what was bought, a few times. Null: it could not be. F3 */
  async #storeWithin(place: Place): Promise<Usable | null> {
    for (let tries = 1; ; tries += 1) {
      const stored = await this.#store(place);
      if (stored !== "trouble") return stored;
      if (tries >= STORE_TRIES) return null;
      await sleep(STORE_PAUSE_MS * tries);
    }
  }

  /** True: nothing waits to be stored any more. F3 */
  async #storeLate(place: Place, auth: OAuth): Promise<boolean> {
    const used = this.#unstored.get(place.credential)?.used;
    if (auth.refresh?.refresh_token !== used) this.#unstored.delete(place.credential);
    else if ((await this.#store(place)) === "trouble") return false;
    this.#options.log.info({ credential: place.credential }, "credential.stored_late");
    return true;
  }

  async #store(place: Place): Promise<Usable | "trouble"> {
    const kept = this.#unstored.get(place.credential);
    if (kept === undefined) return { type: "gone" };
    const { tokens, used, at } = kept;
    const now = await tried(
      this.#change(place, (auth) => {
        // Somebody stored other tokens meanwhile (a person who signed in anew): theirs count.
        if (auth.refresh === null || auth.refresh.refresh_token !== used) return null;
        return {
          ...auth,
          access_token: tokens.access,
          expires_at: tokens.lifeS === null ? null : new Date(at + tokens.lifeS * 1000).toISOString(),
          refresh: { ...auth.refresh, refresh_token: tokens.refresh ?? used },
          refused: null,
          refreshedAt: at,
          lease: null,
        };
      }),
    );
    if (now === "trouble") {
      this.#options.log.error({ credential: place.credential }, "credential.unstored");
      return "trouble";
    }
    this.#unstored.delete(place.credential);
    return now?.access_token ? { type: "use", token: now.access_token } : { type: "gone" };
  }

  /** Writes the lease, if the need for it is still there; null: it is not, or another was faster. F2 */
  async #take(place: Place, why: Why): Promise<OAuth | null> {
    const id = randomUUID();
    const auth = await this.#change(place, (now) => {
      if (needOf(now, why, Date.now()).type !== "renew" || this.#isHeld(place, now)) return null;
      const lease = { by: this.#me, id, ms: this.#leaseMs, until: Date.now() + this.#leaseMs };
      return { ...now, lease, forcedAt: why.type === "rejected" ? Date.now() : now.forcedAt };
    });
    return auth?.lease?.id === id ? auth : null;
  }

  /** Another process asks right now. One of this process's own is what a failed write left: F1 says that nobody is at it. F2 */
  #isHeld(place: Place, { lease }: OAuth): boolean {
    if (lease === null || lease.by === this.#me || !this.#options.isShared) return false;
    const seen = this.#seen.get(place.credential);
    if (seen?.id !== lease.id) remember(this.#seen, place.credential, { id: lease.id, at: performance.now() });
    else if (performance.now() - seen.at >= lease.ms) return false;
    return Date.now() < lease.until + CLOCK_SKEW_MS;
  }

  #isPaused(place: Place): boolean {
    const pause = this.#pauses.get(place.credential);
    return pause !== undefined && performance.now() < pause.until;
  }

  /** F4 */
  #pause(place: Place): void {
    const ms = Math.min((this.#pauses.get(place.credential)?.ms ?? PAUSE_MS_MIN / 2) * 2, PAUSE_MS_MAX);
    remember(this.#pauses, place.credential, { until: performance.now() + ms, ms });
  }

  #change(place: Place, change: (now: OAuth) => OAuth | null): Promise<OAuth | null> {
    return changeOAuth(this.#options.vaults, place, change);
  }
}

function remember<T>(map: Map<string, T>, key: string, value: T): void {
  map.delete(key);
  map.set(key, value);
  const oldest = map.keys().next();
  if (map.size > REMEMBERED_MAX && !oldest.done) map.delete(oldest.value);
}
