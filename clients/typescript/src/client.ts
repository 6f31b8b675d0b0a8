/**
 * One client of a pi-server: typed commands, each of which runs at most once whatever the network does.
 *
 * Every command has an `id` that nobody else uses, and every mutation the same as `idempotencyKey`. What has no answer
 * when the connection is lost is sent again, in the old order, on the next one: the server replays what ran and runs
 * what did not. What the server refused without a trace (rate limit, busy, stopping) is sent again after a pause.
 */
import { ConnectionError, IncompatibleError, errorOf, isPassing } from "./errors.ts";
import { SessionFollower } from "./follower.ts";
import {
  COMMANDS,
  type CommandData,
  type CommandFields,
  type Envelope,
  type Response,
  type ServerMessage,
  type ServerReady,
  type SessionEvent,
} from "./generated/pi-server.ts";
import { webSocketTransport, type Transport, type TransportFactory } from "./transport.ts";

/** Waits between attempts to connect, and after passing refusals: doubled up to the last, with jitter. */
const PAUSE_FIRST_MS = 100;
const PAUSE_MAX_MS = 5_000;

/** The server refuses more than 100 unanswered commands of one connection; the rest wait here. */
const UNANSWERED_MAX = 64;

export interface ClientOptions {
  /** `ws://127.0.0.1:3141`, or the hub's address with `/ws/pi`. */
  url?: string;
  token?: string;
  /** Instead of `url`: another way to the server, for example `stdioTransport()`. */
  transport?: TransportFactory;
  /** Connect again when the connection is lost; true unless said otherwise. */
  reconnect?: boolean;
  /** Called with everything that is no response: lifecycle, sessions, events. */
  onMessage?: (message: ServerMessage) => void;
  /** Called when the connection comes and goes. */
  onConnection?: (state: "connected" | "disconnected", reason?: string) => void;
}

export type SendOptions = Envelope & {
  /** Gives up waiting; the command may still run. */
  signal?: AbortSignal;
};

/** A successful answer. */
export interface Answer<K extends keyof CommandData> {
  data: CommandData[K];
  sessionVersion?: number;
  /** The outcome is of an earlier attempt of this very command. */
  replayed: boolean;
  id: string;
}

interface Waiting {
  id: string;
  text: string;
  resolve: (response: Response) => void;
  reject: (error: Error) => void;
  isSent: boolean;
  /** Passing refusals so far. */
  refusals: number;
  /** Not to be sent before this moment. */
  notBefore: number;
}

export class PiServerClient {
  /** What the server said of itself on the newest connection. */
  serverReady: ServerReady | undefined;
  /** The newest version seen of each session. */
  readonly versions = new Map<string, number>();

  readonly #options: ClientOptions;
  readonly #factory: TransportFactory;
  /** In the order of sending; answered ones leave. */
  readonly #waiting = new Map<string, Waiting>();
  readonly #followers = new Map<string, SessionFollower>();
  #transport: Transport | undefined;
  #isReady = false;
  #closed: Error | undefined;
  #attempts = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #ready = Promise.withResolvers<void>();

  constructor(options: ClientOptions) {
    this.#options = options;
    if (options.transport) this.#factory = options.transport;
    else if (options.url !== undefined) this.#factory = webSocketTransport(options.url, options.token);
    else throw new TypeError("A client needs a url or a transport");
    // Nobody may be waiting when it fails; who waits sees it.
    this.#ready.promise.catch(() => {});
  }

  /** Connects and waits for `server_ready`. Sending does it too. */
  async connect(): Promise<ServerReady> {
    this.#open();
    await this.#ready.promise;
    if (!this.serverReady) throw new ConnectionError("The server never said that it is ready");
    return this.serverReady;
  }

  /** Sends a command and gives its data; a failure is thrown. */
  async call<K extends keyof CommandFields & keyof CommandData>(
    type: K,
    fields: CommandFields[K],
    options: SendOptions = {},
  ): Promise<CommandData[K]> {
    return (await this.send(type, fields, options)).data;
  }

  /** The same with version and identity. */
  async send<K extends keyof CommandFields & keyof CommandData>(
    type: K,
    fields: CommandFields[K],
    options: SendOptions = {},
  ): Promise<Answer<K>> {
    const { signal, ...envelope } = options;
    const id = envelope.id ?? crypto.randomUUID();
    const key = envelope.idempotencyKey ?? (COMMANDS[type].mutating ? id : undefined);
    const command = { type, ...fields, ...envelope, id, ...(key === undefined ? {} : { idempotencyKey: key }) };
    const response = await this.#deliver(id, JSON.stringify(command), signal);
    const sessionId = (fields as { sessionId?: string }).sessionId;
    if (sessionId !== undefined && response.sessionVersion !== undefined) {
      this.versions.set(sessionId, response.sessionVersion);
    }
    if (!response.success) throw errorOf(response);
    const answer: Answer<K> = { data: response.data as CommandData[K], replayed: response.replayed ?? false, id };
    if (response.sessionVersion !== undefined) answer.sessionVersion = response.sessionVersion;
    return answer;
  }

  /** Follows a session: its conversation and its events, through every reconnect. */
  async follow(sessionId: string): Promise<SessionFollower> {
    const known = this.#followers.get(sessionId);
    if (known) return known;
    const follower = new SessionFollower(this, sessionId);
    this.#followers.set(sessionId, follower);
    try {
      await this.call("switch_session", { sessionId, resync: true });
      await follower.ready;
    } catch (error) {
      this.#followers.delete(sessionId);
      throw error;
    }
    return follower;
  }

  /** Stops following. The server has no such command, so the events still come and are dropped here. */
  unfollow(sessionId: string): void {
    this.#followers.delete(sessionId);
  }

  /** Ends the connection; commands without an answer fail. */
  close(): void {
    this.#end(new ConnectionError("The client was closed"));
  }

  #deliver(id: string, text: string, signal?: AbortSignal): Promise<Response> {
    if (this.#closed) return Promise.reject(this.#closed);
    if (this.#waiting.has(id)) return Promise.reject(new TypeError(`The id ${id} is in use`));
    signal?.throwIfAborted();
    const { promise, resolve, reject } = Promise.withResolvers<Response>();
    this.#waiting.set(id, { id, text, resolve, reject, isSent: false, refusals: 0, notBefore: 0 });
    signal?.addEventListener(
      "abort",
      () => {
        if (this.#waiting.delete(id)) reject(signal.reason);
      },
      { once: true },
    );
    this.#open();
    this.#pump();
    return promise;
  }

  #open(): void {
    if (this.#transport || this.#closed || this.#timer) return;
    const own: { transport?: Transport } = {};
    const isCurrent = () => own.transport !== undefined && own.transport === this.#transport;
    own.transport = this.#factory({
      opened: () => {},
      message: (text) => {
        if (isCurrent()) this.#message(text);
      },
      closed: (reason) => {
        if (isCurrent()) this.#lost(reason);
      },
    });
    this.#transport = own.transport;
  }

  #message(text: string): void {
    let message: ServerMessage;
    try {
      message = JSON.parse(text) as ServerMessage;
    } catch {
      // Not a message of this protocol: the connection is of no use.
      this.#transport?.close();
      return;
    }
    switch (message.type) {
      case "response":
        this.#response(message);
        return;
      case "server_ready":
        this.#greeted(message.data);
        break;
      case "command_finished": {
        const { sessionId, sessionVersion } = message.data;
        if (sessionId !== undefined && sessionVersion !== undefined) this.versions.set(sessionId, sessionVersion);
        break;
      }
      case "session_deleted":
        this.versions.delete(message.data.sessionId);
        this.#followers.get(message.data.sessionId)?.ended();
        this.#followers.delete(message.data.sessionId);
        break;
      case "event":
        this.#followers.get(message.sessionId)?.event((message as SessionEvent).event);
        break;
      default:
        break;
    }
    this.#options.onMessage?.(message);
  }

  #greeted(ready: ServerReady): void {
    if (!ready.protocolVersion.startsWith("1.")) {
      this.#end(new IncompatibleError(ready.protocolVersion));
      return;
    }
    this.serverReady = ready;
    this.#isReady = true;
    this.#attempts = 0;
    this.#ready.resolve();
    this.#options.onConnection?.("connected");
    // First what was under way, in its old order; then everything is followed again.
    this.#pump();
    for (const [sessionId, follower] of this.#followers) {
      if (follower.isLost) void this.#followAgain(sessionId, follower);
    }
  }

  async #followAgain(sessionId: string, follower: SessionFollower): Promise<void> {
    try {
      await this.call("switch_session", { sessionId, resync: true });
    } catch (error) {
      if (!(error instanceof ConnectionError)) {
        this.#followers.delete(sessionId);
        follower.ended();
      }
    }
  }

  #response(response: Response): void {
    const id = response.id;
    const waiting = id === undefined ? undefined : this.#waiting.get(id);
    if (!waiting) return;
    if (isPassing(response)) {
      waiting.isSent = false;
      waiting.refusals += 1;
      waiting.notBefore = Date.now() + pause(waiting.refusals);
      setTimeout(() => this.#pump(), waiting.notBefore - Date.now());
      return;
    }
    this.#waiting.delete(waiting.id);
    waiting.resolve(response);
    this.#pump();
  }

  /** Sends what is due, in order, and no more than the server takes. */
  #pump(): void {
    if (!this.#isReady || !this.#transport) return;
    let unanswered = 0;
    for (const waiting of this.#waiting.values()) {
      if (unanswered >= UNANSWERED_MAX) return;
      unanswered += 1;
      if (waiting.isSent) continue;
      // Later ones do not overtake one that has to wait: they may build on it.
      if (waiting.notBefore > Date.now()) return;
      waiting.isSent = true;
      this.#transport.send(waiting.text);
    }
  }

  #lost(reason: string): void {
    const wasReady = this.#isReady;
    this.#transport = undefined;
    this.#isReady = false;
    for (const waiting of this.#waiting.values()) waiting.isSent = false;
    for (const follower of this.#followers.values()) follower.lost();
    if (wasReady) {
      this.#ready = Promise.withResolvers<void>();
      this.#ready.promise.catch(() => {});
      this.#options.onConnection?.("disconnected", reason);
    }
    if (this.#options.reconnect === false) {
      this.#end(new ConnectionError(`The connection was lost: ${reason}`));
      return;
    }
    this.#attempts += 1;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#open();
    }, pause(this.#attempts));
  }

  #end(error: Error): void {
    if (this.#closed) return;
    this.#closed = error;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const transport = this.#transport;
    this.#transport = undefined;
    this.#isReady = false;
    transport?.close();
    this.#ready.reject(error);
    for (const waiting of this.#waiting.values()) waiting.reject(error);
    this.#waiting.clear();
    for (const follower of this.#followers.values()) follower.ended();
    this.#followers.clear();
  }
}

/** Longer each time, and never the same for two clients. */
function pause(attempt: number): number {
  const longest = Math.min(PAUSE_MAX_MS, PAUSE_FIRST_MS * 2 ** Math.min(attempt - 1, 16));
  return longest / 2 + (Math.random() * longest) / 2;
}
