/** One session, followed: attached on every connection, resumed where it was, folded into plain values. */
import type {
  AttachData,
  EventEnvelope,
  InputRequest,
  InputResponseParams,
  Message,
  PartialMessage,
  SessionState,
  TerminalSnapshot,
} from "../generated/canonical.ts";
import { pause, sleep } from "../shared/pause.ts";
import { relearnTools, takeAttach, type Arrival } from "./fold/attach.ts";
import type { Calls } from "./calls.ts";
import { addPage, gaps, startFrom, type Gap } from "./fold/conversation.ts";
import { CommandError } from "./errors.ts";
import { fold, strongest } from "./fold/fold.ts";
import { Listeners } from "../shared/listeners.ts";
import { RunOutputs } from "./run-outputs.ts";
import type { PendingSends } from "./pending-sends.ts";
import type { Answered, Notice, PendingSend, SendOptions, SessionChanged, ToolRun, Writing } from "./types.ts";
import { emptySession, type ChangeKind, type FoldedSession } from "./fold/folded-session.ts";

/** Messages of one page. */
const PAGE = 200;

/** What a session needs of its client. */
export interface SessionClient {
  readonly calls: Calls;
  readonly sends: PendingSends;
  /** There is a connection; `signal` is given when it ends. */
  readonly isLive: boolean;
  readonly signal: AbortSignal;
  isRunnerAway(runnerId: string): boolean;
  released(model: SessionModel): void;
}

export class SessionModel {
  readonly sessionId: string;
  readonly #client: SessionClient;
  readonly #listeners = new Listeners<[SessionChanged]>();
  readonly #outputs: RunOutputs;
  #view: FoldedSession = emptySession();
  #isLoaded = false;
  #isGone = false;
  #error: string | undefined;
  #revision = 0;
  #change: ChangeKind | undefined;
  #published: PublishedCopies = {};
  /** Grows when the conversation is another: pages of the old one are not wanted any more. */
  #conversation = 0;
  #isAttaching = false;
  /** The turn is over, or the session was read: what was sent and is nowhere will never be a message. */
  #isSettling = false;
  /** The place of the last hole, so that one that stays is not asked about for ever. */
  #hole = "";
  #older: Promise<void> | undefined;

  /** @internal */
  constructor(sessionId: string, client: SessionClient) {
    this.sessionId = sessionId;
    this.#client = client;
    this.#outputs = new RunOutputs(() => client.calls.call("run.screen", {}, { sessionId }));
  }

  /** The answer to the first attach is there. */
  get loaded(): boolean {
    return this.#isLoaded;
  }

  /** Why it could not be attached; it is tried again. */
  get error(): string | undefined {
    return this.#error;
  }

  /** There is no such session, or not any more. */
  get isGone(): boolean {
    return this.#isGone;
  }

  get state(): SessionState | undefined {
    return this.#view.state;
  }

  /** The loaded messages by `idx`, the newest among them. A new array after every change. */
  get messages(): readonly Message[] {
    return (this.#published.messages ??= [...this.#view.messages]);
  }

  get hasOlder(): boolean {
    const first = this.#view.messages[0];
    return first ? first.idx > 0 : (this.#view.state?.message_count ?? 0) > 0;
  }

  /** What is not loaded between loaded messages, after `loadAround`. */
  get gaps(): readonly Gap[] {
    return (this.#published.gaps ??= gaps(this.#view.messages));
  }

  /** What is being written and what runs; absent for neither. A new object after every change. */
  get partial(): Writing | undefined {
    const published = this.#published;
    if (!("partial" in published)) {
      published.running ??= [...this.#view.tools.values()].filter((run) => run.status === "running");
      published.partial = writingOf(this.#view.writing, published.running);
    }
    return published.partial;
  }

  get tools(): ReadonlyMap<string, ToolRun> {
    return (this.#published.tools ??= new Map(this.#view.tools));
  }

  get questions(): readonly InputRequest[] {
    return this.#view.questions;
  }

  /** When an open question was asked; unknown for one that was there before this client. */
  askedAt(requestId: string): number | undefined {
    return this.#view.askedAt.get(requestId);
  }

  /** Questions that were answered while this client was there, by whomever. */
  get answered(): readonly Answered[] {
    return this.#view.answered;
  }

  get pending(): readonly PendingSend[] {
    return this.#client.sends.of(this.sessionId);
  }

  get notices(): readonly Notice[] {
    return (this.#published.notices ??= [...this.#view.notices]);
  }

  /** What is shown is what the hub last knew: the session's machine is away. */
  get runnerAway(): boolean {
    const { state } = this.#view;
    return state !== undefined && (state.status === "offline" || this.#client.isRunnerAway(state.runner_id));
  }

  get revision(): number {
    return this.#revision;
  }

  /** The screen of a run; `onOutput` gives what was written after it. */
  get terminal(): TerminalSnapshot | undefined {
    return this.#outputs.snapshot;
  }

  /** Called at most once for all that came together. */
  onChange(listener: (change: SessionChanged) => void): () => void {
    return this.#listeners.add(listener);
  }

  /**
   * What a run writes after `terminal`, from there on, each piece once: first what has come since, at once. Where a new
   * screen takes the place of the old one, the text begins with the sequence that clears a terminal.
   */
  onOutput(listener: (text: string, seq: number) => void): () => void {
    return this.#outputs.add(listener);
  }

  /** Loads the page before the first loaded message. */
  loadOlder(): Promise<void> {
    this.#older ??= this.#loadOlder().finally(() => {
      this.#older = undefined;
    });
    return this.#older;
  }

  async #loadOlder(): Promise<void> {
    if (!this.hasOlder) return;
    const first = this.#view.messages[0];
    await this.#loadPage(first ? first.idx : undefined, PAGE);
  }

  /** Loads the messages around one, of which some may be missing between them and the newest: see `gaps`. */
  async loadAround(idx: number): Promise<void> {
    await this.#loadPage(idx + PAGE / 2, PAGE);
  }

  /** Loads what follows the beginning of a gap. */
  async loadGap(gap: Gap): Promise<void> {
    const before = Math.min(gap.from + PAGE, gap.to + 1);
    await this.#loadPage(before, before - gap.from);
  }

  async #loadPage(before: number | undefined, limit: number): Promise<void> {
    const conversation = this.#conversation;
    const params = before === undefined ? { limit } : { before, limit };
    const { messages } = await this.#client.calls.call("get_messages", params, { sessionId: this.sessionId });
    if (conversation !== this.#conversation) return;
    this.#view.messages = addPage(this.#view.messages, messages);
    relearnTools(this.#view);
    this.#changed("messages");
  }

  /** PendingSends a prompt; what becomes of it is in `pending`. Returns its name there. */
  send(text: string, options: SendOptions = {}): string {
    return this.#client.sends.send(this.sessionId, text, options);
  }

  /** PendingSends one that failed, or whose fate is not known, once more, as a new one with a new `clientId`. */
  resend(clientId: string): void {
    this.#client.sends.resend(this.sessionId, clientId);
  }

  discard(clientId: string): void {
    this.#client.sends.discard(this.sessionId, clientId);
  }

  /** Answers a question; rejects when somebody else was faster. */
  async answer(requestId: string, answer: Omit<InputResponseParams, "request_id">): Promise<void> {
    const params = { actor: "web", ...answer, request_id: requestId };
    await this.#client.calls.call("input_response", params, { sessionId: this.sessionId });
  }

  async abort(): Promise<void> {
    await this.#client.calls.call("abort", {}, { sessionId: this.sessionId });
  }

  /** This user does not need it any more; the last one ends the following. */
  release(): void {
    this.#client.released(this);
  }

  /** @internal Attaches on this connection, where it was. */
  attach(): void {
    if (this.#isGone || this.#isAttaching || !this.#client.isLive) return;
    this.#isAttaching = true;
    void this.#attach(this.#client.signal);
  }

  async #attach(signal: AbortSignal): Promise<void> {
    for (let attempt = 1; !signal.aborted && !this.#isGone; attempt += 1) {
      if (await this.#tryAttach(signal)) return;
      await sleep(pause(attempt), signal);
    }
  }

  /** Settles when there is an answer: true when nothing is left to do. */
  #tryAttach(signal: AbortSignal): Promise<boolean> {
    const { sessionId } = this;
    const arrival: Arrival = this.#isLoaded ? "resumed" : "first";
    const params = arrival === "resumed" ? { after: this.#view.seq } : {};
    return new Promise((settle) => {
      this.#client.calls.ask(
        "session.attach",
        params,
        { sessionId, signal },
        (response) => {
          this.#isAttaching = false;
          this.#attached(response.data as AttachData, arrival);
          settle(true);
        },
        (error) => {
          if (!signal.aborted) this.#refused(error);
          settle(signal.aborted || this.#isGone);
        },
      );
    });
  }

  #refused(error: Error): void {
    // The one refusal that is final.
    if (error instanceof CommandError && error.code === "session_not_found") this.gone();
    else this.#error = error.message;
    this.#changed("state");
  }

  #attached(data: AttachData, arrival: Arrival): void {
    this.#isLoaded = true;
    this.#error = undefined;
    if (data.messages || data.resume === "gap") this.#conversation += 1;
    const { needsMessages } = takeAttach(this.#view, data, arrival);
    if (data.terminal) this.#outputs.reset(data.terminal);
    this.#isSettling = true;
    this.#looked("all");
    if (needsMessages) void this.#readNewest();
  }

  /** The hub could not give the newest messages with its answer. */
  async #readNewest(): Promise<void> {
    const conversation = this.#conversation;
    try {
      const { messages } = await this.#client.calls.call("get_messages", { limit: PAGE }, { sessionId: this.sessionId });
      if (conversation !== this.#conversation) return;
      this.#view.messages = startFrom(this.#view.messages, messages);
      relearnTools(this.#view);
    } catch (error) {
      this.#error = error instanceof Error ? error.message : String(error);
    }
    this.#looked("all");
  }

  /** @internal An event of this session. */
  event(frame: EventEnvelope): void {
    if (!this.#isLoaded) return;
    if (frame.event === "session.resync") {
      this.#attached(frame, "resync");
      return;
    }
    const { kind, isHole } = fold(this.#view, frame);
    if (isHole) this.#ask(frame);
    for (const output of this.#view.outputs.splice(0)) this.#outputs.push(output);
    if (frame.event === "messages") this.#conversation += 1;
    if (frame.event === "agent.idle") this.#isSettling = true;
    if (kind) this.#looked(kind);
  }

  /** Something is missing before this event: the hub is asked where the session stands, once for each hole. */
  #ask(frame: EventEnvelope): void {
    const { seq } = frame;
    const hole = seq === undefined ? `${this.#view.writing?.message_id}` : `${this.#view.seq}`;
    if (hole === this.#hole) return;
    this.#hole = hole;
    this.attach();
  }

  /** @internal The connection is lost: what is attached is attached no more. */
  lost(): void {
    this.#isAttaching = false;
    this.#hole = "";
  }

  /** @internal */
  gone(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#changed("state");
  }

  /** @internal Something beside this session changed that shows in it: its sends, its machine. */
  touched(): void {
    this.#changed("state");
  }

  /** The view changed: sends that have become messages, or never will, are pending no more. */
  #looked(kind: ChangeKind): void {
    this.#changed(kind);
    if (kind === "delta") return;
    const { messages, state } = this.#view;
    this.#client.sends.seen(this.sessionId, messages);
    if (!state || !this.#isSettling || this.#view.seq < this.#view.stateSeq) return;
    this.#isSettling = false;
    this.#client.sends.settled(this.sessionId, state);
  }

  #changed(kind: ChangeKind): void {
    this.#revision += 1;
    const { messages, gaps: missing, notices, tools, running } = this.#published;
    // What did not change stays the same value.
    if (kind === "delta") this.#published = { messages, gaps: missing, notices, tools, running };
    else if (kind === "state") this.#published = { messages, gaps: missing, notices };
    else this.#published = {};
    const isFirst = this.#change === undefined;
    this.#change = strongest([this.#change, kind]);
    if (isFirst) queueMicrotask(() => this.#tell());
  }

  #tell(): void {
    const kind = this.#change;
    this.#change = undefined;
    if (kind !== undefined) this.#listeners.tell({ kind });
  }
}

/** Copies for the application: made when they are read, at most once for each change. */
interface PublishedCopies {
  messages?: readonly Message[] | undefined;
  gaps?: readonly Gap[] | undefined;
  partial?: Writing | undefined;
  running?: readonly ToolRun[] | undefined;
  tools?: ReadonlyMap<string, ToolRun> | undefined;
  notices?: readonly Notice[] | undefined;
}

function writingOf(writing: PartialMessage | undefined, tools: readonly ToolRun[]): Writing | undefined {
  if (!writing) return tools.length > 0 ? { tools } : undefined;
  return { message: { ...writing, blocks: writing.blocks.map((block) => ({ ...block })) }, tools };
}
