/**
 * One followed session: its messages, the answer being written, its open questions. Whenever events do not tell how the
 * conversation changed (a lost connection, a gap, a compaction, a fork) it is read anew, so that it always ends equal to
 * `get_messages`.
 */
import type { PiServerClient } from "./client.ts";
import { ConnectionError } from "../shared/errors.ts";
import { CommandError, isSessionGone } from "./errors.ts";
import type { FaceEvent, SessionInfo, UiResponse } from "../generated/pi-server.ts";
import { callBack, pause, sleep } from "../shared/pause.ts";
import { begin, change, isSame, type AgentMessage } from "./streaming.ts";

/** More messages than this are not kept while the conversation is read: it is read once more instead. */
const NEW_MESSAGES_MAX = 1_000;

/**
 * Events after which the messages are not what was seen: `conversation_changed` says just that; compaction and retry
 * remove messages.
 */
const CHANGES = ["conversation_changed", "compaction_end", "auto_compaction_end", "auto_retry_start"];

const DIALOGS = ["select", "confirm", "input", "editor", "interview"];

type AnyEvent = { type: string; [key: string]: unknown };
type Resync = Extract<FaceEvent, { type: "session_resync" }>;
export type UiRequest = Extract<FaceEvent, { type: "extension_ui_request" }>;

export type FollowerUpdate =
  /** An event as it came, folded in already. */
  | { type: "event"; event: AnyEvent }
  /** The conversation was read anew: throw away what you had. */
  | { type: "resync" }
  /** The session is gone or no longer followed, or the client is closed. Nothing comes after it. */
  | { type: "ended" };

export class SessionFollower {
  readonly sessionId: string;
  info: SessionInfo | undefined;
  messages: AgentMessage[] = [];
  /** The answer being written, in pi's own form; the object changes in place as it grows. */
  streaming: AgentMessage | null = null;
  /** Open questions by `requestId`. */
  readonly questions = new Map<string, UiRequest>();
  /** Settles when the session was read for the first time; rejects when that failed. */
  readonly ready: Promise<void>;
  /** Events were missed, and what is here is old until the next `resync` update. */
  isLost = true;
  /** The session was read at least once. */
  isReady = false;
  /** Nothing comes any more. */
  isEnded = false;

  readonly #client: PiServerClient;
  readonly #listeners = new Set<(update: FollowerUpdate) => void>();
  readonly #ready = Promise.withResolvers<void>();
  /** Ends the reading under way; there is at most one, the newest. */
  #reading: AbortController | undefined;
  /** Messages that came since the reading began: it may have them or not. */
  #new: AgentMessage[] = [];

  constructor(client: PiServerClient, sessionId: string) {
    this.#client = client;
    this.sessionId = sessionId;
    this.ready = this.#ready.promise;
    this.ready.catch(() => {});
  }

  /** Calls back for everything that happens; the returned function ends that. */
  onUpdate(listener: (update: FollowerUpdate) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Answers an open question. */
  async answer(requestId: string, response: UiResponse): Promise<void> {
    await this.#client.call("extension_ui_response", { sessionId: this.sessionId, requestId, response });
  }

  /** @internal */
  event(event: AnyEvent): void {
    if (this.isEnded) return;
    if (event.type === "event_gap") {
      // The server sends a resync next.
      this.lost();
      return;
    }
    if (event.type === "session_resync") {
      this.#resync(event as unknown as Resync);
      void this.#read();
      return;
    }
    this.#fold(event);
    if (CHANGES.includes(event.type) && !this.isLost) void this.#read();
    this.#tell({ type: "event", event });
  }

  /** @internal */
  lost(): void {
    this.isLost = true;
    this.#reading?.abort();
    this.#reading = undefined;
  }

  /** @internal */
  ended(error: Error): void {
    if (this.isEnded) return;
    this.isEnded = true;
    this.lost();
    this.#ready.reject(error);
    this.#tell({ type: "ended" });
    this.#listeners.clear();
  }

  #resync(resync: Resync): void {
    this.isLost = false;
    this.info = resync.sessionInfo;
    this.streaming = resync.message ? begin(resync.message as AgentMessage) : null;
    this.questions.clear();
    for (const request of resync.pendingRequests as UiRequest[]) this.questions.set(request.requestId, request);
  }

  /** Reads the conversation until it succeeds or a newer reading begins. */
  async #read(): Promise<void> {
    this.#reading?.abort();
    const reading = new AbortController();
    this.#reading = reading;
    for (let attempt = 1; !reading.signal.aborted; attempt += 1) {
      // What came before this question is in its answer.
      this.#new = [];
      try {
        const options = { signal: reading.signal };
        const data = await this.#client.call("get_messages", { sessionId: this.sessionId }, options);
        if (!reading.signal.aborted) this.#readAs(data.messages as AgentMessage[]);
        return;
      } catch (error) {
        if (reading.signal.aborted) return;
        if (isSessionGone(error) || (!this.isReady && error instanceof CommandError)) {
          this.#client.drop(this, error as Error);
          return;
        }
        // Closed for good: the client ends its followers.
        if (error instanceof ConnectionError) return;
      }
      await sleep(pause(attempt), reading.signal);
    }
  }

  #readAs(messages: AgentMessage[]): void {
    this.#reading = undefined;
    this.messages = messages;
    for (const message of this.#new) this.#add(message);
    this.#new = [];
    this.isReady = true;
    this.#ready.resolve();
    this.#tell({ type: "resync" });
  }

  #add(message: AgentMessage): void {
    // One that was in the conversation when it was read is not new.
    if (!this.messages.some((known) => isSame(known, message))) this.messages.push(message);
  }

  #fold(event: AnyEvent): void {
    switch (event.type) {
      case "message_start": {
        const message = event.message as AgentMessage;
        if (message.role === "assistant") this.streaming = begin(message);
        break;
      }
      case "message_update":
        // While events are missing there is nothing to add to; the resync has it whole.
        if (this.streaming && !this.isLost) this.streaming = change(this.streaming, event);
        break;
      case "message_end":
        this.#ended(event.message as AgentMessage);
        break;
      case "agent_settled":
        this.streaming = null;
        break;
      case "extension_ui_request": {
        const request = event as unknown as UiRequest;
        if (DIALOGS.includes(request.method)) this.questions.set(request.requestId, request);
        break;
      }
      case "extension_ui_resolved":
        this.questions.delete(event.requestId as string);
        break;
      default:
        break;
    }
  }

  #ended(message: AgentMessage): void {
    if (message.role === "assistant") this.streaming = null;
    this.#add(message);
    if (!this.#reading) return;
    this.#new.push(message);
    if (this.#new.length > NEW_MESSAGES_MAX) void this.#read();
  }

  #tell(update: FollowerUpdate): void {
    for (const listener of [...this.#listeners]) callBack(listener, update);
  }
}
