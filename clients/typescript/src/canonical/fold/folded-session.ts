/** One session as a client sees it: plain data, which the folds change. */
import type {
  InputRequest,
  Message,
  PartialMessage,
  SessionState,
  TerminalSnapshot,
} from "../../generated/canonical.ts";
import type { Answered, Notice, SessionChanged, ToolRun } from "../types.ts";

export interface Output {
  readonly text: string;
  readonly seq: number;
}

export interface FoldedSession {
  /** The cursor: the last record that was folded. */
  seq: number;
  /** `state`, questions, tools and what is being written are of this record: those up to it are history. */
  stateSeq: number;
  state?: SessionState;
  /** By idx; see `conversation.ts`. */
  messages: Message[];
  writing?: PartialMessage;
  tools: Map<string, ToolRun>;
  questions: readonly InputRequest[];
  /** When each open question was asked, as far as this client was there. */
  askedAt: Map<string, number>;
  answered: readonly Answered[];
  notices: Notice[];
  /** The screen of a run, and what it wrote since. */
  terminal?: TerminalSnapshot;
  outputs: Output[];
}

export function emptySession(): FoldedSession {
  return { seq: 0, stateSeq: 0, messages: [], tools: new Map(), questions: [], askedAt: new Map(), answered: [], notices: [], outputs: [] };
}

/** Notices kept; of more the newest. */
export const NOTICES_MAX = 500;

/** Answered questions kept; of more the newest. */
export const ANSWERED_MAX = 100;

export type ChangeKind = SessionChanged["kind"];

/** What came of an event. */
export interface FoldResult {
  /** What changed; absent for nothing. */
  kind?: ChangeKind;
  /** Something before it is missing: attach again. */
  isHole?: boolean;
}

/** Changes the state; a field without a value goes. */
export function patch(view: FoldedSession, change: Partial<SessionState>): void {
  if (view.state) view.state = defined({ ...view.state, ...change }) as SessionState;
}

/** Without the fields that have no value. */
export function defined<T extends object>(value: T): Partial<T> {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as Partial<T>;
}
