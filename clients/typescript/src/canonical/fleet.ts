/** Every session and every machine the hub knows, kept up to date. */
import type { RunnerInfo, SessionSummary, SystemEvent } from "../generated/canonical.ts";
import { pause, sleep } from "../shared/pause.ts";
import type { Calls } from "./calls.ts";
import { Listeners } from "../shared/listeners.ts";

/** Changes that come together are read together; a long list is read less often. */
const READ_AGAIN_MS = 150;
const READ_AGAIN_MS_PER_SESSION = 1;

export class FleetModel {
  readonly #calls: Calls;
  readonly #listeners = new Listeners<[]>();
  #sessions: ReadonlyMap<string, SessionSummary> = new Map();
  #runners: ReadonlyMap<string, RunnerInfo> = new Map();
  #isLoaded = false;
  #signal: AbortSignal | undefined;
  #reading: Promise<void> | undefined;
  /** Something changed since the list was asked for. */
  #isStale = false;
  #lastReadAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isTelling = false;

  /** @internal */
  constructor(calls: Calls) {
    this.#calls = calls;
  }

  get sessions(): ReadonlyMap<string, SessionSummary> {
    return this.#sessions;
  }

  get runners(): ReadonlyMap<string, RunnerInfo> {
    return this.#runners;
  }

  /** Sessions and machines were read at least once. */
  get loaded(): boolean {
    return this.#isLoaded;
  }

  onChange(listener: () => void): () => void {
    return this.#listeners.add(listener);
  }

  /** Reads everything anew; rejects when the hub says no. */
  async refresh(): Promise<void> {
    await Promise.all([this.#readSessions(), this.#readRunners()]);
  }

  /** Reads the machines anew: how busy they are is not told, it is asked for. Rejects when the hub says no. */
  refreshRunners(): Promise<void> {
    return this.#readRunners();
  }

  /** @internal A connection is there: asking for the list also asks for news of it. */
  live(signal: AbortSignal): void {
    this.#signal = signal;
    this.#isStale = false;
    this.#reading = undefined;
    void this.#follow(signal);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    for (let attempt = 1; !signal.aborted; attempt += 1) {
      try {
        await this.refresh();
        return;
      } catch {
        // Refused or lost: tried again as long as this connection lasts.
        await sleep(pause(attempt), signal);
      }
    }
  }

  /** @internal */
  news(event: SystemEvent): void {
    if (event.type === "runner.changed") this.#runnerChanged(event);
    if (event.type === "session.changed") this.#sessionChanged(event);
  }

  #runnerChanged({ runner_id, status, runner }: Extract<SystemEvent, { type: "runner.changed" }>): void {
    const known = this.#runners.get(runner_id);
    const info = runner ?? (known ? { ...known, status } : undefined);
    if (!info) return;
    this.#runners = new Map(this.#runners).set(runner_id, info);
    // Its sessions are offline with it, and back with it.
    if (known?.status !== info.status) this.#readLater();
    this.#changed();
  }

  #sessionChanged(event: Extract<SystemEvent, { type: "session.changed" }>): void {
    const { session_id, change, session } = event;
    if (change === "deleted") {
      const sessions = new Map(this.#sessions);
      if (sessions.delete(session_id)) {
        this.#sessions = sessions;
        this.#changed();
      }
    }
    if (session && change !== "deleted") {
      this.#sessions = new Map(this.#sessions).set(session_id, session);
      this.#changed();
    } else if (change !== "deleted") {
      // A hub that does not send the new line has it in its list.
      this.#readLater();
    }
    // A list that is on its way may be older than this.
    if (this.#reading) this.#isStale = true;
  }

  #readLater(): void {
    this.#isStale = true;
    if (this.#timer !== undefined || this.#reading) return;
    const rest = READ_AGAIN_MS + READ_AGAIN_MS_PER_SESSION * this.#sessions.size;
    const wait = Math.max(0, this.#lastReadAt + rest - Date.now());
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      // One that fails is read with the next change, or on the next connection.
      this.#readSessions().catch(() => {});
    }, wait);
  }

  #readSessions(): Promise<void> {
    const signal = this.#signal;
    this.#reading ??= this.#readList(signal).finally(() => {
      this.#reading = undefined;
      if (this.#isStale && !signal?.aborted) this.#readLater();
    });
    return this.#reading;
  }

  async #readList(signal: AbortSignal | undefined): Promise<void> {
    this.#isStale = false;
    const { sessions } = await this.#calls.call("list_sessions", {}, signal ? { signal } : {});
    this.#lastReadAt = Date.now();
    this.#sessions = new Map(sessions.map((session) => [session.session_id, session]));
    this.#isLoaded = true;
    this.#changed();
  }

  async #readRunners(): Promise<void> {
    const signal = this.#signal;
    const { runners } = await this.#calls.call("get_runners", {}, signal ? { signal } : {});
    this.#runners = new Map(runners.map((runner) => [runner.runner_id, runner]));
    this.#changed();
  }

  #changed(): void {
    if (this.#isTelling) return;
    this.#isTelling = true;
    queueMicrotask(() => {
      this.#isTelling = false;
      this.#listeners.tell();
    });
  }
}
