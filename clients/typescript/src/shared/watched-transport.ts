/**
 * One connection at a time: what comes is passed on, a loss is told once, and a connection that is open on this side
 * only is noticed, by silence or because this program has slept.
 */
import { sleep } from "./pause.ts";
import type { Transport, TransportFactory } from "./transport.ts";

/** How often it is looked whether time has jumped. */
const TICK_MS = 1_000;

/** How long a server that may be gone has for a sign of life. */
const CHECK_MS = 3_000;

export interface WatchOptions {
  factory: TransportFactory;
  /** A server that says nothing for so long is probed, and lost after as long again; 0 for never. */
  silenceMs: number;
  /** Timers that are so late mean that this program slept: the server is probed at once; 0 for never. */
  freezeMs: number;
  /** Something the server answers at almost no cost; the name comes back with the answer, for `answered`. */
  probe: (name: string) => string;
  /** Whether silence matters now. */
  isWanted: () => boolean;
  message: (text: string) => void;
  /** Once for each connection. `code` is the WebSocket's, where there is one. */
  lost: (reason: string, code?: number) => void;
}

export class WatchedTransport {
  readonly #options: WatchOptions;
  #transport: Transport | undefined;
  #connection = ended();
  #isReady = false;
  #isProbed = false;
  /** Only the answer to this probe will do: what else comes may have been under way before. */
  #checked: string | undefined;
  #probes = 0;
  /** When the silence has lasted too long. */
  #dueAt = Infinity;

  constructor(options: WatchOptions) {
    this.#options = options;
  }

  get isOpen(): boolean {
    return this.#transport !== undefined;
  }

  /** The server has greeted. */
  get isReady(): boolean {
    return this.#isReady;
  }

  /** Given when this connection ends. */
  get signal(): AbortSignal {
    return this.#connection.signal;
  }

  open(): void {
    if (this.#transport) return;
    const connection = new AbortController();
    this.#connection = connection;
    this.#checked = undefined;
    this.#heard();
    const isCurrent = () => this.#connection === connection && !connection.signal.aborted;
    const closed = (reason: string, code?: number) => {
      if (isCurrent()) this.drop(reason, code);
    };
    try {
      this.#transport = this.#options.factory({
        opened: () => {},
        message: (text) => {
          if (!isCurrent()) return;
          this.#heard();
          this.#options.message(text);
        },
        // Never before this function is over: it may come while the transport is made.
        closed: (reason, code) => queueMicrotask(() => closed(reason, code)),
      });
    } catch (error) {
      this.#transport = { send: () => {}, close: () => {} };
      queueMicrotask(() => closed(error instanceof Error ? error.message : String(error)));
    }
    if (this.#options.silenceMs > 0) void this.#listen(connection.signal);
  }

  ready(): void {
    this.#isReady = true;
  }

  send(text: string): void {
    this.#transport?.send(text);
  }

  /** The server may be gone: it gets a short while for a sign of life. */
  check(): void {
    if (!this.#isReady || this.#checked !== undefined) return;
    this.#checked = this.#probe();
    this.#dueAt = Date.now() + CHECK_MS;
  }

  /** The answer to a probe has come. */
  answered(name: string): void {
    if (name === this.#checked) this.#checked = undefined;
    this.#heard();
  }

  /** The connection is lost, or not wanted any more for the reason given. */
  drop(reason: string, code?: number): void {
    if (!this.#transport) return;
    this.end();
    this.#options.lost(reason, code);
  }

  /** Ends it without a word. */
  end(): void {
    const transport = this.#transport;
    this.#transport = undefined;
    this.#isReady = false;
    this.#connection.abort();
    transport?.close();
  }

  #heard(): void {
    this.#isProbed = false;
    const { silenceMs } = this.#options;
    if (this.#checked !== undefined) this.#dueAt = Date.now() + CHECK_MS;
    else this.#dueAt = silenceMs > 0 ? Date.now() + silenceMs : Infinity;
  }

  #probe(): string {
    this.#probes += 1;
    const name = `alive-${this.#probes}`;
    this.send(this.#options.probe(name));
    return name;
  }

  async #listen(signal: AbortSignal): Promise<void> {
    const { freezeMs } = this.#options;
    while (!signal.aborted) {
      const wakeAt = freezeMs > 0 ? Math.min(this.#dueAt, Date.now() + TICK_MS) : this.#dueAt;
      await sleep(Math.max(1, wakeAt - Date.now()), signal);
      if (signal.aborted) return;
      const now = Date.now();
      const hasSlept = freezeMs > 0 && this.#isReady && now - wakeAt > freezeMs;
      if (hasSlept && this.#checked === undefined) {
        // The time for an answer runs from now on: nothing could be heard while this program slept.
        this.check();
      } else if (hasSlept || now >= this.#dueAt) {
        this.#silent();
      }
    }
  }

  #silent(): void {
    const { silenceMs, isWanted } = this.#options;
    const isAnswerDue = this.#isProbed || this.#checked !== undefined || !this.#isReady;
    this.#dueAt = Date.now() + silenceMs;
    if (!isWanted() && this.#isReady && this.#checked === undefined) {
      this.#isProbed = false;
    } else if (isAnswerDue) {
      const lasted = this.#isReady ? 2 * silenceMs : silenceMs;
      this.drop(this.#checked !== undefined ? "the server gave no sign of life" : `the server said nothing for ${lasted} ms`);
    } else {
      this.#isProbed = true;
      this.#probe();
    }
  }
}

function ended(): AbortController {
  const controller = new AbortController();
  controller.abort();
  return controller;
}
