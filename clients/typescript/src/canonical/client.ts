/** One client of a hub: a connection that comes back, commands that run once, models that follow. */
import type {
  CommandData,
  CommandParams,
  CommandResponse,
  EventEnvelope,
  SystemEvent,
  TerminalFrame,
} from "../generated/canonical.ts";
import { Calls, type Progress } from "./calls.ts";
import { Connection, type Frame } from "./connection.ts";
import { FleetModel } from "./fleet.ts";
import { Listeners } from "../shared/listeners.ts";
import { PendingSends } from "./pending-sends.ts";
import { SessionModel } from "./session.ts";
import { TerminalModel } from "./terminal.ts";
import type {
  CallOptions,
  CommandName,
  ConnectionInfo,
  Presence,
  QuarterdeckOptions,
  SystemFrame,
  TerminalOptions,
} from "./types.ts";

/** A session nobody looks at is followed a little longer: people go back and forth. */
const LINGER_MS = 5_000;

interface FollowedSession {
  readonly model: SessionModel;
  users: number;
  timer?: ReturnType<typeof setTimeout> | undefined;
}

export class Quarterdeck {
  readonly fleet: FleetModel;
  readonly #connection: Connection;
  readonly #calls: Calls;
  readonly #sends: PendingSends;
  readonly #system = new Listeners<[SystemFrame]>();
  readonly #sessions = new Map<string, FollowedSession>();
  readonly #terminals = new Set<TerminalModel>();
  #presence: Presence | undefined;
  #wasLive = false;

  constructor(options: QuarterdeckOptions = {}) {
    this.#connection = new Connection(options, {
      live: () => this.#live(),
      lost: () => this.#lost(),
      frame: (frame) => this.#frame(frame),
    });
    this.#calls = new Calls((text) => this.#connection.send(text));
    this.#sends = new PendingSends(this.#calls, storeOf(options), (sessionId) => this.#sessions.get(sessionId)?.model.touched());
    this.fleet = new FleetModel(this.#calls);
  }

  get connection(): ConnectionInfo {
    return this.#connection.info;
  }

  onConnection(listener: (info: ConnectionInfo) => void): () => void {
    return this.#connection.listeners.add(listener);
  }

  /** Connects, and again whenever the connection is lost. Also after `refused`, when the person has signed in. */
  connect(): void {
    this.#calls.reopen();
    this.#sends.reopen();
    this.#connection.connect();
  }

  /** Ends the connection; calls without an answer fail. */
  close(): void {
    this.#connection.close();
    this.#calls.close();
    for (const { timer } of this.#sessions.values()) clearTimeout(timer);
  }

  /**
   * PendingSends a command. What changes something has an `idempotency_key` and is sent again under it after a reconnect until
   * it is answered, so it runs once. Rejects with `CommandError`, or its kinds `IndeterminateError` and `TimedOutError`.
   */
  async call<C extends CommandName>(
    cmd: C,
    params: CommandParams[C],
    options: CallOptions = {},
  ): Promise<CommandData[C]> {
    const data = await this.#calls.call(cmd, params, options);
    if (cmd === "session.create" || cmd === "session.restart") this.#made(data);
    return data;
  }

  /** Commands that change something and have no answer yet. */
  get pendingCalls(): number {
    return this.#calls.waiting;
  }

  onPendingCalls(listener: (count: number) => void): () => void {
    return this.#calls.listeners.add(listener);
  }

  /** Follows a session. Each call is one user of the model, who calls `release()` when done. */
  session(sessionId: string): SessionModel {
    let followed = this.#sessions.get(sessionId);
    if (!followed || followed.model.isGone) {
      followed = { model: this.#newSession(sessionId), users: 0 };
      this.#sessions.set(sessionId, followed);
      followed.model.attach();
    }
    clearTimeout(followed.timer);
    followed.timer = undefined;
    followed.users += 1;
    return followed.model;
  }

  /** Everything on the channel `system`: notices, `shutdown`, changes. */
  onSystem(listener: (frame: SystemFrame) => void): () => void {
    return this.#system.add(listener);
  }

  /** What the person looks at; told again on every connection. */
  setPresence(presence: Presence): void {
    this.#presence = presence;
    if (this.#connection.isLive) this.#tellPresence();
  }

  /** Opens a terminal, or joins one. */
  terminal(options: TerminalOptions): TerminalModel {
    const connection = this.#connection;
    const model = new TerminalModel({ ...options }, {
      get isLive() {
        return connection.isLive;
      },
      send: (text) => connection.send(text),
      readState: (sessionId) => this.#calls.call("get_state", {}, { sessionId }),
      isShared: (one) => [...this.#terminals].some((other) => other !== one && other.terminalId === one.terminalId),
      left: (left) => void this.#terminals.delete(left),
    });
    this.#terminals.add(model);
    if (connection.isLive) model.live();
    return model;
  }

  #newSession(sessionId: string): SessionModel {
    const connection = this.#connection;
    return new SessionModel(sessionId, {
      calls: this.#calls,
      sends: this.#sends,
      get isLive() {
        return connection.isLive;
      },
      get signal() {
        return connection.signal;
      },
      isRunnerAway: (runnerId) => this.fleet.runners.get(runnerId)?.status === "offline",
      released: (model) => this.#released(model),
    });
  }

  #released(model: SessionModel): void {
    const followed = this.#sessions.get(model.sessionId);
    if (!followed || followed.model !== model || followed.users === 0) return;
    followed.users -= 1;
    if (followed.users > 0) return;
    followed.timer = setTimeout(() => this.#leave(model), LINGER_MS);
  }

  #leave(model: SessionModel): void {
    this.#sessions.delete(model.sessionId);
    if (this.#connection.isLive && !model.isGone) this.#detach(model.sessionId);
  }

  /** Nobody needs to know what comes of it: at worst a few events come that nobody looks at. */
  #detach(sessionId: string): void {
    const { signal } = this.#connection;
    this.#calls.ask("session.detach", {}, { sessionId, signal }, () => {}, () => {});
  }

  /** The hub attaches whoever makes a session: from where it is now, which is not where a model was. */
  #made(data: unknown): void {
    const { session_id } = (data ?? {}) as { session_id?: string };
    if (session_id === undefined) return;
    const followed = this.#sessions.get(session_id);
    if (followed) followed.model.attach();
    else this.#detach(session_id);
  }

  #live(): void {
    this.#calls.open(!this.#wasLive);
    this.#wasLive = true;
    this.#tellPresence();
    this.fleet.live(this.#connection.signal);
    for (const { model } of this.#sessions.values()) model.attach();
    for (const terminal of [...this.#terminals]) terminal.live();
  }

  #lost(): void {
    this.#calls.lost();
    for (const { model } of this.#sessions.values()) model.lost();
    for (const terminal of [...this.#terminals]) terminal.lost();
  }

  #tellPresence(): void {
    if (!this.#presence) return;
    const { visible, sessionId } = this.#presence;
    this.#connection.send(JSON.stringify({ channel: "system", type: "presence", visible, session_id: sessionId }));
  }

  #frame(frame: Frame): void {
    switch (frame.channel) {
      case "agent":
        this.#agent(frame as unknown as EventEnvelope);
        break;
      case "terminal":
        this.#terminal(frame as unknown as TerminalFrame);
        break;
      case "system":
        this.#systemFrame(frame as unknown as SystemEvent);
        break;
      default:
        break;
    }
  }

  #agent(frame: EventEnvelope): void {
    if (frame.event === "response") this.#calls.answer(frame as unknown as CommandResponse);
    else if (frame.event === "progress") this.#calls.progress(frame as unknown as Progress);
    else this.#sessions.get(frame.session_id)?.model.event(frame);
  }

  #terminal(frame: TerminalFrame): void {
    for (const model of [...this.#terminals]) if (model.isMine(frame)) model.take(frame);
  }

  #systemFrame(event: SystemEvent): void {
    this.fleet.news(event);
    if (event.type === "error" && event.id !== undefined) this.#calls.misread(event.id, event.error, event.code);
    if (event.type === "session.changed" && event.change === "deleted") {
      this.#sessions.get(event.session_id)?.model.gone();
    }
    if (event.type === "runner.changed") {
      for (const { model } of this.#sessions.values()) {
        if (model.state?.runner_id === event.runner_id) model.touched();
      }
    }
    this.#system.tell(event);
  }
}

function storeOf({ storage }: QuarterdeckOptions): Pick<Storage, "getItem" | "setItem"> | undefined {
  if (storage !== undefined) return storage ?? undefined;
  return typeof document === "undefined" ? undefined : sessionStorage;
}
