/**
 * One followed session: its messages, the answer being written, its open questions. After a lost connection or a gap it
 * is read anew, so that it always ends equal to `get_messages`.
 */
import type { PiServerClient } from "./client.ts";
import { ConnectionError } from "./errors.ts";
import type { FaceEvent, SessionInfo, UiResponse } from "./generated/pi-server.ts";

/** A message in pi's own form; only what identifies it is named here. */
export interface AgentMessage {
  role: string;
  timestamp?: number;
  toolCallId?: string;
  [key: string]: unknown;
}

export type UiRequest = Extract<FaceEvent, { type: "extension_ui_request" }>;

export type FollowerUpdate =
  /** An event as it came, folded in already. */
  | { type: "event"; event: { type: string; [key: string]: unknown } }
  /** Everything was read anew: throw away what you had. */
  | { type: "resync" }
  /** The session is gone, or the client is closed. */
  | { type: "ended" };

export class SessionFollower {
  readonly sessionId: string;
  info: SessionInfo | undefined;
  messages: AgentMessage[] = [];
  /** The message being generated, in pi's own form. */
  streaming: unknown = null;
  /** Open questions by `requestId`. */
  readonly questions = new Map<string, UiRequest>();
  /** Settles when the session was read for the first time. */
  readonly ready: Promise<void>;
  /** The connection went away since the last look. */
  isLost = false;

  readonly #client: PiServerClient;
  readonly #listeners = new Set<(update: FollowerUpdate) => void>();
  readonly #ready = Promise.withResolvers<void>();
  /** Events that came while the conversation is read; `undefined` when it is not. */
  #held: { type: string; [key: string]: unknown }[] | undefined = [];
  /** Raised with every reading, so that a slow one does not overwrite a newer. */
  #reading = 0;

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
  event(event: { type: string; [key: string]: unknown }): void {
    if (event.type === "session_resync") {
      void this.#read(event as unknown as Extract<FaceEvent, { type: "session_resync" }>);
      return;
    }
    if (event.type === "event_gap") {
      // What comes until the resync is told by the resync.
      this.#held = [];
      return;
    }
    if (this.#held) {
      this.#held.push(event);
      return;
    }
    this.#fold(event);
    this.#tell({ type: "event", event });
  }

  /** @internal */
  lost(): void {
    this.isLost = true;
    this.#reading += 1;
    this.#held = [];
  }

  /** @internal */
  ended(): void {
    this.#ready.reject(new ConnectionError("The session is gone"));
    this.#tell({ type: "ended" });
  }

  async #read(resync: Extract<FaceEvent, { type: "session_resync" }>): Promise<void> {
    this.isLost = false;
    this.#reading += 1;
    const reading = this.#reading;
    this.#held = [];
    let messages: AgentMessage[];
    try {
      const data = await this.#client.call("get_messages", { sessionId: this.sessionId });
      messages = data.messages as AgentMessage[];
    } catch (error) {
      if (reading === this.#reading) this.#ready.reject(error);
      return;
    }
    if (reading !== this.#reading) return;
    this.info = resync.sessionInfo;
    this.messages = messages;
    this.streaming = resync.message ?? null;
    this.questions.clear();
    for (const request of resync.pendingRequests as UiRequest[]) this.questions.set(request.requestId, request);
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const event of held) this.#fold(event);
    this.#ready.resolve();
    this.#tell({ type: "resync" });
  }

  #fold(event: { type: string; [key: string]: unknown }): void {
    switch (event.type) {
      case "message_start":
        if ((event.message as AgentMessage).role === "assistant") this.streaming = event.message;
        break;
      case "message_end": {
        const message = event.message as AgentMessage;
        if (message.role === "assistant") this.streaming = null;
        // One that was in the conversation when it was read is not new.
        if (!this.messages.some((known) => isSame(known, message))) this.messages.push(message);
        break;
      }
      case "agent_settled":
        this.streaming = null;
        break;
      case "extension_ui_request": {
        const request = event as unknown as UiRequest;
        if (["select", "confirm", "input", "editor", "interview"].includes(request.method)) {
          this.questions.set(request.requestId, request);
        }
        break;
      }
      case "extension_ui_resolved":
        this.questions.delete(event.requestId as string);
        break;
      default:
        break;
    }
  }

  #tell(update: FollowerUpdate): void {
    for (const listener of this.#listeners) listener(update);
  }
}

function isSame(left: AgentMessage, right: AgentMessage): boolean {
  return (
    left.role === right.role &&
    left.timestamp === right.timestamp &&
    left.toolCallId === right.toolCallId &&
    JSON.stringify(left.content) === JSON.stringify(right.content)
  );
}
