/** Commands on their way: each with an identity, sent again until it is answered. */
import { COMMANDS, type CommandData, type CommandParams, type CommandResponse, type ErrorCode } from "../generated/canonical.ts";
import { PendingCommands } from "../shared/pending-commands.ts";
import { callBack } from "../shared/pause.ts";
import { codeOf, ConnectionError, TooLargeError } from "../shared/errors.ts";
import { newId } from "../shared/ids.ts";
import { limitOf } from "../shared/older.ts";
import { CommandError, errorOf } from "./errors.ts";
import { Listeners } from "../shared/listeners.ts";
import type { CallOptions, CommandName } from "./types.ts";

/** What one frame may carry. */
const FRAME_BYTES_MAX = 32 * 1024 * 1024;
const PENDING_MAX = 1_000;
const RESENDS_MAX = 30;
/** A hub that was restarted is there before its machines are: what comes again waits so long for them. */
const AGAIN_WAIT_MS = 10_000;

interface CallInFlight {
  readonly cmd: CommandName;
  readonly hasEffect: boolean;
  readonly onProgress: ((data: unknown) => void) | undefined;
}

export interface Progress {
  id?: string;
  cmd: string;
  data: unknown;
}

export class Calls {
  readonly listeners = new Listeners<[number]>();
  readonly #pending: PendingCommands<CommandResponse>;
  readonly #send: (text: string) => void;
  readonly #under = new Map<string, CallInFlight>();
  #closed: Error | undefined;
  #waiting = 0;

  constructor(send: (text: string) => void) {
    this.#send = send;
    this.#pending = new PendingCommands(send, { resendsMax: RESENDS_MAX, pendingMax: PENDING_MAX });
  }

  /** Commands that change something and have no answer yet. */
  get waiting(): number {
    return this.#waiting;
  }

  call<C extends CommandName>(cmd: C, params: CommandParams[C], options: CallOptions = {}): Promise<CommandData[C]> {
    const { promise, resolve, reject } = Promise.withResolvers<CommandData[C]>();
    this.ask(cmd, params, options, (response) => resolve(response.data as CommandData[C]), reject);
    return promise;
  }

  /** The same with callbacks, which are called before anything that comes after the answer is looked at. */
  ask<C extends CommandName>(
    cmd: C,
    params: CommandParams[C],
    options: CallOptions,
    answered: (response: CommandResponse) => void,
    failed: (error: Error) => void,
  ): void {
    const { signal } = options;
    if (this.#closed || signal?.aborted) {
      failed(this.#closed ?? abortedError(signal));
      return;
    }
    const id = newId();
    const text = frameOf(id, cmd, params, options);
    const bytes = byteCount(text);
    if (bytes > FRAME_BYTES_MAX) {
      failed(new TooLargeError(bytes, FRAME_BYTES_MAX));
      return;
    }
    const spec = COMMANDS[cmd];
    const abort = () => {
      if (spec.lane === "service" && this.#pending.isSent(id)) this.#cancel(id);
      this.#pending.fail(id, abortedError(signal));
    };
    const done = () => {
      signal?.removeEventListener("abort", abort);
      this.#under.delete(id);
      if (hasEffect(cmd)) this.#count(-1);
    };
    signal?.addEventListener("abort", abort);
    this.#under.set(id, { cmd, hasEffect: hasEffect(cmd), onProgress: options.onProgress });
    if (hasEffect(cmd)) this.#count(1);
    const isFree = spec.lane !== "session" && spec.lane !== "shell";
    const again = { wait: true, waitMs: AGAIN_WAIT_MS, ...options };
    const textAgain = () => (hasEffect(cmd) ? frameOf(id, cmd, params, again) : text);
    this.#pending.put(
      { id, text, textAgain, bytes, sessionId: options.sessionId ?? "", isFree },
      (response) => {
        done();
        if (response.success) answered(response);
        else failed(errorOf(response));
      },
      (error) => {
        done();
        failed(error);
      },
    );
  }

  /** The hub is there: what has no answer is sent, in the order of the calls. */
  open(isFirst: boolean): void {
    this.#pending.open();
    if (isFirst) return;
    // A watch goes on, but what happened meanwhile was not seen: whoever watches looks again.
    for (const { cmd, onProgress } of [...this.#under.values()]) {
      if (cmd === "fs.watch") callBack(onProgress, { changes: [], overflow: true });
    }
  }

  lost(): void {
    this.#pending.lost();
  }

  answer(response: CommandResponse): void {
    if (response.success || codeOf(response) !== "too_many_in_flight") return this.#pending.answered(response);
    const limit = limitOf(response);
    this.#pending.refused(response.id, limit === undefined ? undefined : limit - 16);
  }

  progress({ id, data }: Progress): void {
    callBack(this.#under.get(id ?? "")?.onProgress, data);
  }

  /** The hub could not read a frame. */
  misread(id: string, error: string, code?: ErrorCode): void {
    const cmd = this.#under.get(id)?.cmd;
    if (cmd !== undefined) this.#pending.fail(id, new CommandError({ id, cmd, success: false, error, ...(code !== undefined && { code }) }));
  }

  /** Everything that waits fails. */
  close(): void {
    this.#closed = new ConnectionError("The client was closed", true);
    this.#pending.failAll(this.#closed);
  }

  reopen(): void {
    this.#closed = undefined;
  }

  #cancel(target: string): void {
    this.#send(JSON.stringify({ channel: "agent", id: newId(), cmd: "cancel", target }));
  }

  #count(change: number): void {
    this.#waiting += change;
    this.listeners.tell(this.#waiting);
  }
}

/** Whether a command changes something: then it has a key, under which it runs once. */
function hasEffect(cmd: CommandName): boolean {
  return COMMANDS[cmd].mutating || COMMANDS[cmd].permission !== "view";
}

function frameOf<C extends CommandName>(id: string, cmd: C, params: CommandParams[C], options: CallOptions): string {
  const key = options.key ?? (hasEffect(cmd) ? id : undefined);
  // Fields without a value are left out by JSON.
  return JSON.stringify({
    channel: "agent",
    id,
    cmd,
    session_id: options.sessionId,
    runner_id: options.runnerId,
    idempotency_key: key,
    wait: options.wait,
    wait_ms: options.waitMs,
    if_session_version: options.ifSessionVersion,
    ...params,
  });
}

function byteCount(text: string): number {
  return text.length * 3 <= FRAME_BYTES_MAX ? text.length : new TextEncoder().encode(text).length;
}

function abortedError(signal: AbortSignal | undefined): Error {
  const reason: unknown = signal?.reason;
  return reason instanceof Error ? reason : new DOMException("The call was taken back", "AbortError");
}
