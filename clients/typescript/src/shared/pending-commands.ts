/**
 * Commands without an answer: which may be sent now, which are sent again and which are given up.
 *
 * Commands of one session are sent in the order in which they were given. One that the server refused for a while holds
 * back those of its session behind it; reads and what steers the agent (abort, steer, follow_up, answers) always pass.
 */
import { ConnectionError, TooLargeError } from "./errors.ts";
import { pause } from "./pause.ts";

/** A connection that is lost sooner than this after a command was sent may have been lost because of it. */
const BLAME_MS = 2_000;

/** After so many losses a command is sent alone, so that others are not blamed for it. */
const SUSPECT_LOSSES = 3;

/** A suspect that has not cost the connection after this long is none: others go on. */
const SUSPECT_MS = 500;

/** A command on its way. */
export interface PendingCommand {
  readonly id: string;
  readonly text: string;
  /** What is sent after a connection was lost, if that is something else. */
  readonly textAgain?: () => string;
  readonly bytes: number;
  /** The session whose order it keeps; empty for commands that name none. */
  readonly sessionId: string;
  /** Never held back by others. */
  readonly isFree: boolean;
}

interface WaitingCommand<R> extends PendingCommand {
  readonly resolve: (response: R) => void;
  readonly reject: (error: Error) => void;
  /** When it was sent on this connection; 0 when it was not. */
  sentAt: number;
  /** Passing refusals so far. */
  refusals: number;
  /** Not to be sent before this moment. */
  notBefore: number;
  /** Connections in a row that were lost right after it was sent. */
  losses: number;
  /** A connection was lost while it waited. */
  isAgain: boolean;
}

/** `R` is a response as the server sends it. */
export class PendingCommands<R extends { id?: string }> {
  /** In the order of sending; answered ones leave. */
  readonly #waiting = new Map<string, WaitingCommand<R>>();
  readonly #send: (text: string) => void;
  readonly #resendsMax: number;
  /** How many unanswered commands of one connection the server takes. */
  #pendingMax: number;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isOpen = false;

  constructor(send: (text: string) => void, limits: { resendsMax: number; pendingMax: number }) {
    this.#send = send;
    this.#resendsMax = limits.resendsMax;
    this.#pendingMax = limits.pendingMax;
  }

  get size(): number {
    return this.#waiting.size;
  }

  has(id: string): boolean {
    return this.#waiting.has(id);
  }

  /** `resolve` and `reject` are called at once when the answer is there, before anything that comes after it. */
  put(command: PendingCommand, resolve: (response: R) => void, reject: (error: Error) => void): void {
    const counters = { sentAt: 0, refusals: 0, notBefore: 0, losses: 0, isAgain: !this.#isOpen };
    this.#waiting.set(command.id, { ...command, resolve, reject, ...counters });
    this.pump();
  }

  /** Whether it is sent on this connection. */
  isSent(id: string): boolean {
    return (this.#waiting.get(id)?.sentAt ?? 0) !== 0;
  }

  /** Takes one out; false when it was not there. */
  remove(id: string): boolean {
    const removed = this.#waiting.delete(id);
    if (removed) this.pump();
    return removed;
  }

  /** The server is there: everything is sent that may be. */
  open(): void {
    this.#isOpen = true;
    this.pump();
  }

  /** The connection is gone: what was sent is sent again on the next, unless it is what costs the connections. */
  lost(): void {
    this.#isOpen = false;
    clearTimeout(this.#timer);
    const now = Date.now();
    for (const waiting of [...this.#waiting.values()]) {
      waiting.isAgain = true;
      if (waiting.sentAt === 0) continue;
      waiting.losses = now - waiting.sentAt < BLAME_MS ? waiting.losses + 1 : 0;
      waiting.sentAt = 0;
      if (waiting.losses <= this.#resendsMax) continue;
      this.#waiting.delete(waiting.id);
      const lost = `The connection was lost ${waiting.losses} times right after this command was sent`;
      waiting.reject(new ConnectionError(`${lost}; it is not sent again, but may have run`));
    }
  }

  /** How many connections in a row the most suspicious command may have cost. */
  get worstLosses(): number {
    let worst = 0;
    for (const waiting of this.#waiting.values()) worst = Math.max(worst, waiting.losses);
    return worst;
  }

  /** An answer that is final. */
  answered(response: R): void {
    const waiting = response.id === undefined ? undefined : this.#waiting.get(response.id);
    if (!waiting) return;
    this.#waiting.delete(waiting.id);
    waiting.resolve(response);
    this.pump();
  }

  /** A refusal that passes: the command is sent again after a pause. `pendingMax` is how many the server takes. */
  refused(id: string | undefined, pendingMax?: number): void {
    if (pendingMax !== undefined) this.#pendingMax = Math.max(1, pendingMax);
    const waiting = id === undefined ? undefined : this.#waiting.get(id);
    if (!waiting) return;
    waiting.sentAt = 0;
    waiting.refusals += 1;
    waiting.notBefore = Date.now() + pause(waiting.refusals);
    this.pump();
  }

  /** One fails. */
  fail(id: string, error: Error): void {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    this.#waiting.delete(id);
    waiting.reject(error);
    this.pump();
  }

  /** The server takes no more than so many bytes: what is larger fails. */
  limit(bytesMax: number, setting?: string): void {
    for (const waiting of [...this.#waiting.values()]) {
      if (waiting.bytes <= bytesMax) continue;
      this.#waiting.delete(waiting.id);
      waiting.reject(new TooLargeError(waiting.bytes, bytesMax, setting));
    }
    this.pump();
  }

  /** Everything fails. */
  failAll(error: Error): void {
    const all = [...this.#waiting.values()];
    this.#waiting.clear();
    clearTimeout(this.#timer);
    for (const waiting of all) waiting.reject(error);
  }

  /** Sends what is due, and no more than the server takes. */
  pump(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (!this.#isOpen) return;
    const now = Date.now();
    const all = [...this.#waiting.values()];
    const sent = all.filter((waiting) => waiting.sentAt !== 0);
    const isCleared = ({ sentAt }: WaitingCommand<R>) => sentAt !== 0 && now - sentAt >= SUSPECT_MS;
    const suspect = all.find((waiting) => waiting.losses >= SUSPECT_LOSSES && !isCleared(waiting));
    const wakeAt = suspect ? this.#pumpSuspect(suspect, sent, now) : this.#pumpAll(all, sent.length, now);
    if (wakeAt === Infinity) return;
    // Timers may fire a little early, and fractions are cut off.
    this.#timer = setTimeout(() => this.pump(), Math.max(1, Math.ceil(wakeAt - now) + 1));
  }

  /** Sends what may go; returns when the next may. */
  #pumpAll(all: WaitingCommand<R>[], alreadySent: number, now: number): number {
    const heldBack = new Set<string>();
    // Some room is left for what must always pass.
    const ordinaryMax = Math.max(1, Math.floor(this.#pendingMax * 0.64));
    let unanswered = alreadySent;
    let wakeAt = Infinity;
    for (const waiting of all) {
      if (waiting.sentAt !== 0) continue;
      if (!waiting.isFree && heldBack.has(waiting.sessionId)) continue;
      const isFull = unanswered >= (waiting.isFree ? this.#pendingMax : ordinaryMax);
      if (waiting.notBefore > now) wakeAt = Math.min(wakeAt, waiting.notBefore);
      if (isFull || waiting.notBefore > now) {
        if (!waiting.isFree) heldBack.add(waiting.sessionId);
        continue;
      }
      unanswered += 1;
      this.#transmit(waiting, now);
    }
    return wakeAt;
  }

  /** One under suspicion goes alone, and is cleared when the connection outlives it. */
  #pumpSuspect(suspect: WaitingCommand<R>, sent: WaitingCommand<R>[], now: number): number {
    if (suspect.sentAt !== 0) return suspect.sentAt + SUSPECT_MS;
    const youngest = Math.max(0, ...sent.map((waiting) => waiting.sentAt));
    // Those before it get their time too.
    if (youngest + SUSPECT_MS > now) return youngest + SUSPECT_MS;
    if (suspect.notBefore > now) return suspect.notBefore;
    this.#transmit(suspect, now);
    return now + SUSPECT_MS;
  }

  #transmit(waiting: WaitingCommand<R>, now: number): void {
    waiting.sentAt = now;
    this.#send((waiting.isAgain ? waiting.textAgain?.() : undefined) ?? waiting.text);
  }
}
