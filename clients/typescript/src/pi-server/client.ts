/**
 * One client of a pi-server: typed commands, each of which runs at most once whatever the network does.
 *
 * Every command has an `id` that nobody else uses, and every mutation the same as `idempotencyKey`. What has no answer
 * when the connection is lost is sent again on the next one: the server replays what ran and runs what did not. What the
 * server refused without a trace (rate limit, busy, stopping) is sent again after a pause.
 */
import { CommandError, errorOf, isPassing, isSessionGone } from "./errors.ts";
import { codeOf, ConnectionError, IncompatibleError, TooLargeError } from "../shared/errors.ts";
import { SessionFollower } from "./follower.ts";
import {
  COMMANDS,
  type CommandData,
  type CommandFields,
  type CommandFinished,
  type Response,
  type ServerMessage,
  type ServerReady,
  type SessionEvent,
} from "../generated/pi-server.ts";
import { limitOf } from "../shared/older.ts";
import type { Answer, ClientOptions, SendOptions } from "./options.ts";
import { WatchedTransport } from "../shared/watched-transport.ts";
import { PendingCommands } from "../shared/pending-commands.ts";
import { callBack, pause, sleep } from "../shared/pause.ts";
import { webSocketTransport } from "../shared/transport.ts";
import { Versions } from "./versions.ts";

/** What a server takes unless its setting `pi_message_bytes_max` says otherwise. */
const MESSAGE_BYTES_MAX = 10 * 1024 * 1024;

/** What raises it. */
const BYTES_SETTING = "pi_message_bytes_max";

/** See `ClientOptions.silenceMs`. */
const SILENCE_MS = 30_000;

/** See `ClientOptions.resendsMax`. */
const RESENDS_MAX = 30;

/** How many unanswered commands of one connection the server takes, until it says otherwise. */
const PENDING_MAX = 100;

/** What steers the agent is never held back by what is done for it. */
const CONTROLS = new Set<string>([
  "abort",
  "abort_compaction",
  "abort_retry",
  "abort_bash",
  "steer",
  "follow_up",
  "extension_ui_response",
]);

/** The longest pause between connections that are lost because of a command: it shall be found out soon. */
const SUSPICION_PAUSE_MS = 500;

/** Costs the server almost nothing and has an answer on every server. */
const PROBE = JSON.stringify({ type: "health_check" });

export class PiServerClient {
  /** What the server said of itself on the newest connection. */
  serverReady: ServerReady | undefined;

  readonly #options: ClientOptions;
  readonly #transport: WatchedTransport;
  readonly #pending: PendingCommands<Response>;
  readonly #versions = new Versions();
  readonly #followers = new Map<string, SessionFollower>();
  #closed: Error | undefined;
  #attempts = 0;
  /** This connection, or the last one, was greeted. */
  #wasReady = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #ready = unheard();
  #bytesMax: number;

  constructor(options: ClientOptions) {
    this.#options = options;
    this.#bytesMax = options.messageBytesMax ?? MESSAGE_BYTES_MAX;
    const factory = options.transport ?? (options.url === undefined ? undefined : webSocketTransport(options.url, options.token));
    if (!factory) throw new TypeError("A client needs a url or a transport");
    const limits = { resendsMax: options.resendsMax ?? RESENDS_MAX, pendingMax: PENDING_MAX };
    this.#pending = new PendingCommands((text) => this.#transport.send(text), limits);
    this.#transport = new WatchedTransport({
      factory,
      silenceMs: options.silenceMs ?? SILENCE_MS,
      freezeMs: 0,
      probe: () => PROBE,
      isWanted: () => this.#pending.size > 0 || this.#followers.size > 0,
      message: (text) => this.#message(text),
      lost: (reason) => this.#lost(reason),
    });
  }

  /** The newest version seen of each session. */
  get versions(): ReadonlyMap<string, number> {
    return this.#versions.newest;
  }

  /** Connects and waits for `server_ready`; rejects when that fails (see `keepTrying`). Sending connects too. */
  async connect(): Promise<ServerReady> {
    if (this.#closed) throw this.#closed;
    const ready = this.#ready.promise;
    this.#open();
    await ready;
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

  /**
   * The same with version and identity. Commands of one session are sent in the order of these calls, but reads and what
   * steers the agent may pass those that the server refused for a while, and lanes of the server run side by side: a
   * command that builds on another names it in `dependsOn`, or waits for its answer.
   */
  async send<K extends keyof CommandFields & keyof CommandData>(
    type: K,
    fields: CommandFields[K],
    options: SendOptions = {},
  ): Promise<Answer<K>> {
    const { signal, ...envelope } = options;
    const id = envelope.id ?? crypto.randomUUID();
    const key = envelope.idempotencyKey ?? (COMMANDS[type].mutating ? id : undefined);
    const command = { type, ...fields, ...envelope, id, ...(key === undefined ? {} : { idempotencyKey: key }) };
    const sessionId = (fields as { sessionId?: string }).sessionId;
    const response = await this.#deliver({ id, type, sessionId: sessionId ?? "", text: JSON.stringify(command) }, signal);
    if (sessionId !== undefined) this.#versions.see(sessionId, response);
    if (!response.success) throw errorOf(response);
    const answer: Answer<K> = { data: response.data as CommandData[K], replayed: response.replayed ?? false, id };
    if (response.sessionVersion !== undefined) answer.sessionVersion = response.sessionVersion;
    return answer;
  }

  /**
   * Follows a session: its conversation and its events, through every reconnect. Settles when it was read; a refusal
   * until then rejects, and later ones are tried again until the session is gone.
   */
  async follow(sessionId: string): Promise<SessionFollower> {
    if (this.#closed) throw this.#closed;
    let follower = this.#followers.get(sessionId);
    if (!follower) {
      follower = new SessionFollower(this, sessionId);
      this.#followers.set(sessionId, follower);
      this.#open();
      if (this.#transport.isReady) void this.#attach(follower);
    }
    await follower.ready;
    return follower;
  }

  /**
   * Stops following; a `follow` that still waits rejects. The server has no such command, so the events still come and
   * are dropped here.
   */
  unfollow(sessionId: string): void {
    const follower = this.#followers.get(sessionId);
    if (follower) this.drop(follower, new ConnectionError(`Session ${sessionId} is no longer followed`));
  }

  /** Ends the connection; commands without an answer fail. */
  close(): void {
    this.#end(new ConnectionError("The client was closed"));
  }

  /** @internal */
  drop(follower: SessionFollower, error: Error): void {
    if (this.#followers.get(follower.sessionId) === follower) this.#followers.delete(follower.sessionId);
    follower.ended(error);
  }

  async #deliver(
    command: { id: string; type: keyof CommandFields; sessionId: string; text: string },
    signal?: AbortSignal,
  ): Promise<Response> {
    if (this.#closed) throw this.#closed;
    if (this.#pending.has(command.id)) throw new TypeError(`The id ${command.id} is in use`);
    signal?.throwIfAborted();
    const bytes = new TextEncoder().encode(command.text).length;
    if (bytes > this.#bytesMax) throw new TooLargeError(bytes, this.#bytesMax, BYTES_SETTING);
    const { promise, resolve, reject } = Promise.withResolvers<Response>();
    const abort = () => {
      if (this.#pending.remove(command.id)) reject(signal?.reason);
    };
    signal?.addEventListener("abort", abort);
    this.#open();
    const { id, type, sessionId, text } = command;
    const isFree = CONTROLS.has(type) || !COMMANDS[type].mutating;
    this.#pending.put({ id, sessionId, text, bytes, isFree }, resolve, reject);
    try {
      return await promise;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  #open(): void {
    if (!this.#closed && !this.#timer) this.#transport.open();
  }

  #message(text: string): void {
    let message: ServerMessage;
    try {
      message = JSON.parse(text) as ServerMessage;
    } catch {
      this.#transport.drop("the server sent something that is not JSON: check that the address is a pi-server's");
      return;
    }
    switch (message.type) {
      case "response":
        this.#response(message);
        return;
      case "server_ready":
        this.#greeted(message.data);
        break;
      case "command_finished":
        this.#finished(message.data);
        break;
      case "session_deleted": {
        const { sessionId } = message.data;
        this.#versions.forget(sessionId);
        const follower = this.#followers.get(sessionId);
        if (follower) this.drop(follower, new ConnectionError(`Session ${sessionId} was deleted`));
        break;
      }
      case "event":
        this.#followers.get(message.sessionId)?.event((message as SessionEvent).event);
        break;
      default:
        break;
    }
    callBack(this.#options.onMessage, message);
  }

  #finished(finished: CommandFinished): void {
    const { sessionId, commandType, success, replayed } = finished;
    if (sessionId === undefined) return;
    // A session that is made anew counts from the beginning.
    const isNew = success && !replayed && ["create_session", "load_session"].includes(commandType);
    if (isNew) this.#versions.forget(sessionId);
    this.#versions.see(sessionId, finished);
  }

  #greeted(ready: ServerReady): void {
    if (!ready.protocolVersion.startsWith("1.")) {
      this.#end(new IncompatibleError(ready.protocolVersion));
      return;
    }
    this.serverReady = ready;
    this.#transport.ready();
    this.#attempts = 0;
    this.#wasReady = true;
    this.#versions.connected();
    this.#ready.resolve();
    // First what was under way; then everything is followed again.
    this.#pending.open();
    for (const follower of [...this.#followers.values()]) void this.#attach(follower);
    callBack(this.#options.onConnection, "connected");
  }

  /** Asks for a session's events on this connection until the server agrees, the connection ends or the session is gone. */
  async #attach(follower: SessionFollower): Promise<void> {
    const { sessionId } = follower;
    const { signal } = this.#transport;
    for (let attempt = 1; !signal.aborted && !follower.isEnded; attempt += 1) {
      try {
        // A new command each time: a replayed one would not make this connection hear anything.
        await this.call("switch_session", { sessionId, resync: true }, { signal });
        return;
      } catch (error) {
        if (signal.aborted || follower.isEnded) return;
        if (isSessionGone(error) || (!follower.isReady && error instanceof CommandError)) {
          this.drop(follower, error as Error);
          return;
        }
      }
      await sleep(pause(attempt), signal);
    }
  }

  #response(response: Response): void {
    // An older server cannot say which command was too large, but how much it takes.
    const limit = response.success ? undefined : limitOf(response);
    if (limit !== undefined && codeOf(response) === "too_large") {
      this.#bytesMax = Math.min(this.#bytesMax, limit);
      this.#pending.limit(this.#bytesMax, BYTES_SETTING);
    } else if (isPassing(response)) {
      this.#pending.refused(response.id, codeOf(response) === "too_many_in_flight" ? limit : undefined);
    } else {
      this.#pending.answered(response);
    }
  }

  #lost(reason: string): void {
    const wasReady = this.#wasReady;
    const neverConnected = this.serverReady === undefined && !this.#options.keepTrying;
    this.#wasReady = false;
    this.#pending.lost();
    for (const follower of this.#followers.values()) follower.lost();
    if (wasReady) this.#ready = unheard();
    const error = new ConnectionError(`${wasReady ? "The connection was lost" : "There is no connection"}: ${reason}`);
    if (this.#options.reconnect === false) {
      this.#end(error);
    } else if (neverConnected) {
      // Whoever tries again finds everything as it was at first.
      this.#ready.reject(error);
      this.#ready = unheard();
      this.#pending.failAll(error);
      for (const follower of [...this.#followers.values()]) this.drop(follower, error);
    } else {
      this.#attempts += 1;
      const losses = this.#pending.worstLosses;
      const wait = Math.max(pause(this.#attempts), losses > 1 ? pause(losses, SUSPICION_PAUSE_MS) : 0);
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        this.#open();
      }, wait);
    }
    callBack(this.#options.onConnection, "disconnected", reason);
  }

  #end(error: Error): void {
    if (this.#closed) return;
    this.#closed = error;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const wasOpen = this.#transport.isOpen;
    this.#transport.end();
    this.#ready.reject(error);
    this.#pending.lost();
    this.#pending.failAll(error);
    for (const follower of [...this.#followers.values()]) this.drop(follower, error);
    if (wasOpen) callBack(this.#options.onConnection, "disconnected", error.message);
  }
}

/** A promise that may reject without anybody waiting; who waits sees it. */
function unheard(): PromiseWithResolvers<void> {
  const resolvers = Promise.withResolvers<void>();
  resolvers.promise.catch(() => {});
  return resolvers;
}
