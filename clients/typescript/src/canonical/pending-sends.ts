/**
 * Prompts this client has sent and not yet seen as messages, of all sessions. They wait while there is no connection
 * or the machine is away, go once, and outlive a page that shows another session, or is loaded again.
 */
import type { CommandData, ImageAttachment, Message, SessionState } from "../generated/canonical.ts";
import { newId } from "../shared/ids.ts";
import type { Calls } from "./calls.ts";
import { ConnectionError } from "../shared/errors.ts";
import { IndeterminateError } from "./errors.ts";
import type { PendingSend, SendKind, SendOptions } from "./types.ts";

/** How long a prompt waits for a machine that is away: the most the hub allows. */
const WAIT_MS = 10 * 60 * 1_000;

const STORE_KEY = "qd.sends";

type SendStore = Pick<Storage, "getItem" | "setItem">;

export class PendingSends {
  readonly #calls: Calls;
  readonly #store: SendStore | undefined;
  readonly #changed: (sessionId: string) => void;
  readonly #all = new Map<string, readonly PendingSend[]>();
  readonly #aborts = new Map<string, AbortController>();

  constructor(calls: Calls, store: SendStore | undefined, changed: (sessionId: string) => void) {
    this.#calls = calls;
    this.#store = store;
    this.#changed = changed;
    this.#restore();
  }

  of(sessionId: string): readonly PendingSend[] {
    return this.#all.get(sessionId) ?? [];
  }

  send(sessionId: string, text: string, options: SendOptions = {}): string {
    const { kind = "prompt", images = [] } = options;
    const clientId = newId();
    const pending: PendingSend = { clientId, text, images, kind, status: "waiting", at: Date.now() };
    this.#set(sessionId, [...this.of(sessionId), pending]);
    this.#go(sessionId, pending);
    return clientId;
  }

  /** Sends one that failed, or whose fate nobody knows, as a new one in the same place. */
  resend(sessionId: string, clientId: string): string | undefined {
    const old = this.#find(sessionId, clientId);
    if (!old || old.status === "waiting" || old.status === "sent") return undefined;
    const { text, images, kind } = old;
    const pending: PendingSend = { clientId: newId(), text, images, kind, status: "waiting", at: Date.now() };
    this.#set(
      sessionId,
      this.of(sessionId).map((one) => (one.clientId === clientId ? pending : one)),
    );
    this.#go(sessionId, pending);
    return pending.clientId;
  }

  /** Forgets one; if it is on its way, it may still arrive. */
  discard(sessionId: string, clientId: string): void {
    if (!this.#find(sessionId, clientId)) return;
    this.#drop(sessionId, (one) => one.clientId === clientId);
    this.#aborts.get(clientId)?.abort();
  }

  /** Messages of the conversation: what has become one is pending no more. */
  seen(sessionId: string, messages: readonly Message[]): void {
    const pending = this.of(sessionId);
    if (pending.length === 0) return;
    const named = new Set(pending.map((one) => one.clientId));
    const seen = new Set<string>();
    for (let at = messages.length - 1; at >= 0 && seen.size < named.size; at -= 1) {
      const clientId = messages[at]?.client_id;
      if (clientId !== undefined && named.has(clientId)) seen.add(clientId);
    }
    if (seen.size === 0) return;
    this.#drop(sessionId, (one) => seen.has(one.clientId));
    for (const clientId of seen) this.#aborts.get(clientId)?.abort();
  }

  /** The agent waits: what it took and what is not in its queue will not become a message any more. */
  settled(sessionId: string, state: SessionState): void {
    if (state.status !== "idle" && state.status !== "dormant") return;
    const queued = [...state.queue.steering, ...state.queue.follow_up];
    const isOver = (one: PendingSend) => one.status === "sent" && !queued.includes(one.text);
    if (this.of(sessionId).some(isOver)) this.#drop(sessionId, isOver);
  }

  /** The client is open again: what waits goes. */
  reopen(): void {
    for (const [sessionId, all] of this.#all) {
      for (const one of all) {
        if (one.status === "waiting" && !this.#aborts.has(one.clientId)) this.#go(sessionId, one);
      }
    }
  }

  #find(sessionId: string, clientId: string): PendingSend | undefined {
    return this.of(sessionId).find((one) => one.clientId === clientId);
  }

  #go(sessionId: string, pending: PendingSend): void {
    const abort = new AbortController();
    this.#aborts.set(pending.clientId, abort);
    const options = { sessionId, key: pending.clientId, wait: true, waitMs: WAIT_MS, signal: abort.signal };
    const done = (change: Partial<PendingSend> | undefined) => {
      this.#aborts.delete(pending.clientId);
      if (change) this.#change(sessionId, pending.clientId, change);
      else this.#drop(sessionId, (one) => one.clientId === pending.clientId);
    };
    const [cmd, params] = commandOf(pending);
    this.#calls.ask(
      cmd,
      params,
      options,
      (response) => {
        // A command of an extension needs no turn, and becomes no message.
        const { disposition } = (response.data ?? {}) as Partial<CommandData["prompt"]>;
        done(disposition === "handled" ? undefined : { status: "sent" });
      },
      (error) => {
        if (abort.signal.aborted) this.#aborts.delete(pending.clientId);
        else done(outcomeOf(error));
      },
    );
  }

  #change(sessionId: string, clientId: string, change: Partial<PendingSend>): void {
    if (!this.#find(sessionId, clientId)) return;
    this.#set(
      sessionId,
      this.of(sessionId).map((one) => (one.clientId === clientId ? { ...one, ...change } : one)),
    );
  }

  #drop(sessionId: string, isIt: (one: PendingSend) => boolean): void {
    this.#set(
      sessionId,
      this.of(sessionId).filter((one) => !isIt(one)),
    );
  }

  #set(sessionId: string, pending: readonly PendingSend[]): void {
    if (pending.length > 0) this.#all.set(sessionId, pending);
    else this.#all.delete(sessionId);
    this.#keep();
    this.#changed(sessionId);
  }

  /** What has no outcome is kept; what was taken is the hub's. */
  #keep(): void {
    const kept: Record<string, PendingSend[]> = {};
    for (const [sessionId, all] of this.#all) {
      const open = all.filter((one) => one.status !== "sent");
      if (open.length > 0) kept[sessionId] = open;
    }
    try {
      this.#store?.setItem(STORE_KEY, JSON.stringify(kept));
    } catch {
      // The store is full (images are large): these sends live as long as the page, as they would without a store.
    }
  }

  #restore(): void {
    let kept: unknown;
    try {
      kept = JSON.parse(this.#store?.getItem(STORE_KEY) ?? "{}");
    } catch {
      return;
    }
    if (typeof kept !== "object" || kept === null) return;
    for (const [sessionId, all] of Object.entries(kept)) {
      if (!Array.isArray(all)) continue;
      const pending = all.filter(isPending);
      if (pending.length > 0) this.#all.set(sessionId, pending);
      for (const one of pending) if (one.status === "waiting") this.#go(sessionId, one);
    }
  }
}

type PromptCommand = ["prompt", { message: string; images?: ImageAttachment[]; streaming_behavior: "follow_up"; client_id: string }];
type SteerCommand = ["steer" | "follow_up", { message: string; images?: ImageAttachment[]; client_id: string }];

/** A prompt that meets an agent at work is read when its turn is done: it was meant to be sent, not refused. */
function commandOf({ kind, text, images, clientId }: PendingSend): PromptCommand | SteerCommand {
  const params = { message: text, client_id: clientId, ...(images.length === 0 ? {} : { images }) };
  return kind === "prompt" ? [kind, { ...params, streaming_behavior: "follow_up" }] : [kind, params];
}

/** What a failure means. */
function outcomeOf(error: Error): Partial<PendingSend> {
  if (error instanceof IndeterminateError) return { status: "indeterminate", error: error.message };
  // A client that was closed has not failed: the send goes when it is open again.
  if (error instanceof ConnectionError && error.isClosed) return {};
  if (error instanceof ConnectionError) return { status: "indeterminate", error: error.message };
  return { status: "failed", error: error.message };
}

const KINDS: readonly SendKind[] = ["prompt", "steer", "follow_up"];

function isPending(value: unknown): value is PendingSend {
  if (typeof value !== "object" || value === null) return false;
  const { clientId, text, images, kind, status, at } = value as Partial<Record<keyof PendingSend, unknown>>;
  const isText = typeof clientId === "string" && typeof text === "string" && typeof at === "number";
  const isKnown = KINDS.includes(kind as SendKind) && ["waiting", "failed", "indeterminate"].includes(String(status));
  return isText && isKnown && Array.isArray(images);
}
