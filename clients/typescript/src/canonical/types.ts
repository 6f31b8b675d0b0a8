/** What an application sees of the client; the models themselves are in their own files. */
import type {
  COMMANDS,
  Decision,
  ImageAttachment,
  InputOutcome,
  InputRequest,
  PartialMessage,
  SystemEvent,
} from "../generated/canonical.ts";
import type { TransportFactory } from "../shared/transport.ts";

export type CommandName = keyof typeof COMMANDS;

/**
 * `connecting` until the first connection is there, `refused` when the hub will not have us (signed out, wrong token,
 * another version): then nothing is tried again until `connect()`.
 */
export type ConnectionState = "connecting" | "live" | "reconnecting" | "refused" | "closed";

export interface ConnectionInfo {
  readonly state: ConnectionState;
  /** Unix milliseconds: since when it is so. */
  readonly since: number;
  /** Attempts that failed since the connection was last there. */
  readonly attempts: number;
  /** Why there is none, for people. */
  readonly error?: string;
  readonly serverVersion?: string;
}

export interface QuarterdeckOptions {
  /** `ws://127.0.0.1:7433/ws/mux`; in a browser the page's own hub unless said otherwise. */
  url?: string;
  /** Instead of `url`: another way to the hub. */
  transport?: TransportFactory;
  /** Goes into the query; a browser that has signed in has its cookie instead. */
  token?: string;
  /** A hub that says nothing for so long is asked for a sign of life; 20,000 unless said otherwise, 0 for never. */
  silenceMs?: number;
  /** Timers later than this mean that this program slept: the hub is asked at once. 4,000 unless said otherwise. */
  freezeMs?: number;
  /**
   * Where sends wait that have no answer, so that they outlive a reload: `sessionStorage` in a browser unless said
   * otherwise, null for nowhere.
   */
  storage?: Pick<Storage, "getItem" | "setItem"> | null;
}

export interface CallOptions {
  sessionId?: string;
  /** The machine, for commands that name no session. */
  runnerId?: string;
  /** The `idempotency_key`; made up for everything that changes something. */
  key?: string;
  /** Cancels a service that runs, and gives up waiting for anything else. */
  signal?: AbortSignal;
  onProgress?: (data: unknown) => void;
  /** When the machine is away: wait for it instead of failing at once. */
  wait?: boolean;
  /** With `wait`: how long at most. */
  waitMs?: number;
  /** Run only when the session has this version. */
  ifSessionVersion?: number;
}

export type SystemFrame = SystemEvent;

export interface Presence {
  visible: boolean;
  sessionId?: string;
}

export type SendKind = "prompt" | "steer" | "follow_up";

/** Something this client has sent and not yet seen as a message of the conversation. */
export interface PendingSend {
  readonly clientId: string;
  readonly text: string;
  readonly images: ImageAttachment[];
  readonly kind: SendKind;
  /**
   * `waiting`: not answered yet, and sent again after every reconnect. `sent`: taken by the agent, which has not read
   * it yet. `failed`: refused, `error` says why. `indeterminate`: nobody can know whether it arrived; `resend` or
   * `discard` it.
   */
  readonly status: "waiting" | "sent" | "failed" | "indeterminate";
  readonly error?: string;
  /** Unix milliseconds. */
  readonly at: number;
}

export interface ToolRun {
  readonly toolCallId: string;
  readonly name: string;
  readonly input?: unknown;
  /** `interrupted`: its turn ended without a word of it. */
  readonly status: "running" | "done" | "error" | "interrupted";
  /** Unix milliseconds. */
  readonly startedAt: number;
  readonly endedAt?: number;
  readonly output?: unknown;
  readonly progress?: unknown;
}

export interface Notice {
  /** Of the record; a notice that is no record has the number of the last one. */
  readonly seq: number;
  readonly ts: number;
  readonly kind: "retry" | "compact" | "error" | "notify" | "lifecycle";
  readonly text: string;
  /** The event's own fields. */
  readonly detail?: unknown;
  /** The message it comes after; -1 for before the first. */
  readonly afterIdx: number;
}

/** A question that was answered, or is over otherwise, while this client was there. */
export interface Answered {
  readonly request: InputRequest;
  readonly outcome?: InputOutcome;
  /** Who answered, and how: `web`, `cli`, `system`. */
  readonly userId?: string;
  readonly actor?: string;
  readonly decision?: Decision;
  /** What was answered: the text typed, the option chosen, `yes` or `no`, the reason of a decision. What looks like a secret is left out. */
  readonly answer?: string;
  /** Unix milliseconds. */
  readonly at: number;
  readonly seq: number;
  readonly afterIdx: number;
}

/** The message being written, and the tools that run. */
export interface Writing {
  readonly message?: PartialMessage;
  readonly tools: readonly ToolRun[];
}

/**
 * What changed since the last call, each including those before it: `delta` the message being written, `state` status,
 * questions, tools, sends and whatever else is no message, `messages` messages and notices, `all` after a reading anew.
 */
export interface SessionChanged {
  readonly kind: "delta" | "state" | "messages" | "all";
}

export interface SendOptions {
  kind?: SendKind;
  images?: ImageAttachment[];
}

export interface TerminalOptions {
  runnerId?: string;
  /** A run's own terminal, or a new one beside a session of another harness. */
  sessionId?: string;
  /** One that is open: joined. */
  terminalId?: string;
  cwd?: string;
  cols: number;
  rows: number;
}

