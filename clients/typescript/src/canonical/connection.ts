/** The connection to the hub: made, watched, and made again for as long as anybody wants it. */
import type { SystemEvent } from "../generated/canonical.ts";
import { WatchedTransport } from "../shared/watched-transport.ts";
import { pause } from "../shared/pause.ts";
import { webSocketTransport } from "../shared/transport.ts";
import { Listeners } from "../shared/listeners.ts";
import type { ConnectionInfo, ConnectionState, QuarterdeckOptions } from "./types.ts";

const SILENCE_MS = 20_000;
/** Timers that are so late mean that the page was frozen, or the lid closed. */
const FREEZE_MS = 4_000;
/** How long the hub has to say why it does not let us in. */
const REASON_MS = 5_000;

/** Answered with an error at once, by the hub alone. */
function probe(id: string): string {
  return JSON.stringify({ channel: "agent", id, cmd: "cancel", target: "" });
}

export interface Frame {
  channel: string;
  [field: string]: unknown;
}

export interface ConnectionHandlers {
  /** The hub has greeted: everything may be sent. */
  live: () => void;
  lost: () => void;
  frame: (frame: Frame) => void;
}

export class Connection {
  info: ConnectionInfo = { state: "closed", since: Date.now(), attempts: 0 };
  readonly listeners = new Listeners<[ConnectionInfo]>();
  readonly #transport: WatchedTransport;
  readonly #handlers: ConnectionHandlers;
  /** Absent where the way to the hub is not ours. */
  readonly #address: URL | undefined;
  readonly #token: string | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #stopWatching: (() => void) | undefined;
  #isGreeted = false;

  constructor(options: QuarterdeckOptions, handlers: ConnectionHandlers) {
    this.#handlers = handlers;
    const address = options.transport ? undefined : addressOf(options.url);
    this.#address = address;
    this.#token = options.token;
    this.#transport = new WatchedTransport({
      factory: options.transport ?? webSocketTransport(address?.href ?? "", options.token, "/ws/mux"),
      silenceMs: options.silenceMs ?? SILENCE_MS,
      freezeMs: options.freezeMs ?? FREEZE_MS,
      probe,
      isWanted: () => true,
      message: (text) => this.#message(text),
      lost: (reason, code) => this.#lost(reason, code),
    });
  }

  get isLive(): boolean {
    return this.#transport.isReady;
  }

  /** Given when this connection ends. */
  get signal(): AbortSignal {
    return this.#transport.signal;
  }

  connect(): void {
    this.#stopWatching ??= watchPage(() => this.#wake());
    if (this.info.state === "closed" || this.info.state === "refused") this.#tell("connecting", 0);
    this.#retryNow();
  }

  send(text: string): void {
    this.#transport.send(text);
  }

  close(): void {
    this.#stopWatching?.();
    this.#stopWatching = undefined;
    this.#stop();
    this.#tell("closed", 0);
  }

  #stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#isGreeted = false;
    const wasOpen = this.#transport.isOpen;
    this.#transport.end();
    if (wasOpen) this.#handlers.lost();
  }

  #refuse(error: string): void {
    this.#stop();
    this.#tell("refused", this.info.attempts, error);
  }

  #retryNow(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#transport.open();
  }

  /** The page is looked at again, or the network is back: no time for patience. */
  #wake(): void {
    if (this.#transport.isReady) this.#transport.check();
    else if (this.#timer !== undefined) this.#retryNow();
  }

  #message(text: string): void {
    let frame: Frame;
    try {
      frame = JSON.parse(text) as Frame;
    } catch {
      this.#transport.drop("the hub sent something that is not JSON: check that the address is a hub's");
      return;
    }
    if (frame.channel === "system" && frame["type"] === "connected") this.#greeted(frame as unknown as Greeting);
    if (frame["cmd"] === "cancel" && typeof frame["id"] === "string") this.#transport.answered(frame["id"]);
    this.#handlers.frame(frame);
  }

  #greeted(greeting: Greeting): void {
    if (!greeting.protocol_version.startsWith("1.")) {
      const spoken = `The hub speaks version ${greeting.protocol_version} of the protocol and this client 1.x`;
      this.#refuse(`${spoken}: reload the page, or update the older one`);
      return;
    }
    this.#isGreeted = true;
    this.#transport.ready();
    this.#tell("live", 0, undefined, greeting.server_version);
    this.#handlers.live();
  }

  #lost(reason: string, code?: number): void {
    const wasGreeted = this.#isGreeted;
    this.#isGreeted = false;
    this.#handlers.lost();
    const attempts = wasGreeted ? 0 : this.info.attempts + 1;
    this.#tell("reconnecting", attempts, reason);
    this.#timer = setTimeout(() => this.#retryNow(), pause(attempts + 1));
    // A handshake that fails says nothing of why; 1008 is how the hub ends what it does not let in any more.
    if (!wasGreeted || code === 1008) void this.#askWhy();
  }

  /** A plain request tells what a WebSocket must not: whether we are signed in. */
  async #askWhy(): Promise<void> {
    if (!this.#address) return;
    const address = new URL("/api/me", this.#address);
    address.protocol = address.protocol === "wss:" ? "https:" : "http:";
    const headers: Record<string, string> = this.#token === undefined ? {} : { authorization: `Bearer ${this.#token}` };
    try {
      const signal = AbortSignal.timeout(REASON_MS);
      const answer = await fetch(address, { headers, signal, cache: "no-store" });
      await answer.body?.cancel();
      const isRefused = answer.status === 401 || answer.status === 403;
      if (isRefused && this.info.state === "reconnecting") this.#refuse("You are not signed in, or not any more");
    } catch {
      // The hub is not there; the next attempt is on its way.
    }
  }

  #tell(state: ConnectionState, attempts: number, error?: string, serverVersion?: string): void {
    const since = state === this.info.state ? this.info.since : Date.now();
    const version = serverVersion ?? this.info.serverVersion;
    this.info = {
      state,
      since,
      attempts,
      ...(error === undefined ? {} : { error }),
      ...(version === undefined ? {} : { serverVersion: version }),
    };
    this.listeners.tell(this.info);
  }
}

type Greeting = Extract<SystemEvent, { type: "connected" }>;

/** The page's own hub, unless another is named. */
function addressOf(url: string | undefined): URL {
  const base = typeof location === "undefined" ? undefined : location.href;
  if (url === undefined && base === undefined) throw new TypeError("A client outside a browser needs a url");
  const address = new URL(url ?? "/ws/mux", base);
  if (address.protocol === "http:") address.protocol = "ws:";
  if (address.protocol === "https:") address.protocol = "wss:";
  if (address.pathname === "/") address.pathname = "/ws/mux";
  return address;
}

/** Calls when a page comes back: shown, thawed, or on the network again. Outside a browser never. */
function watchPage(wake: () => void): () => void {
  if (typeof document === "undefined") return () => {};
  const shown = () => {
    if (document.visibilityState === "visible") wake();
  };
  const ending = new AbortController();
  const { signal } = ending;
  document.addEventListener("visibilitychange", shown, { signal });
  document.addEventListener("resume", wake, { signal });
  addEventListener("pageshow", wake, { signal });
  addEventListener("online", wake, { signal });
  return () => ending.abort();
}
