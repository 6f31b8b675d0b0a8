/**
 * Events in, view out. No clock, no network: the same events give the same view.
 *
 * Records change the conversation whenever they come, also as history; what is true only at a moment (status, questions,
 * tools that run) is changed by what came after the answer to the attach, which knew it better.
 */
import type { EventEnvelope, InputRequest, Message, SessionState } from "../../generated/canonical.ts";
import { put } from "./conversation.ts";
import { begin, grow, type Delta } from "./deltas.ts";
import { noticeOf } from "./notices.ts";
import { foldRun } from "./fold-run.ts";
import type { Answered } from "../types.ts";
import * as tools from "./tools.ts";
import { ANSWERED_MAX, NOTICES_MAX, defined, patch, type ChangeKind, type FoldResult, type FoldedSession } from "./folded-session.ts";

/** Folds one event of the session; `session.resync` is `takeAttach`'s. */
export function fold(view: FoldedSession, frame: EventEnvelope): FoldResult {
  const { seq } = frame;
  if (seq !== undefined) {
    if (seq <= view.seq) return {};
    if (seq > view.seq + 1) return { isHole: true };
    view.seq = seq;
  }
  const delta = deltaOf(frame);
  if (delta) return foldDelta(view, delta);
  const isNow = seq === undefined || seq > view.stateSeq;
  const kinds = [
    foldConversation(view, frame),
    foldRun(view, frame, isNow),
    isNow ? foldMoment(view, frame) : undefined,
    foldNotice(view, frame),
  ];
  if (isNow && seq !== undefined && view.state) {
    view.stateSeq = seq;
    view.state = { ...view.state, seq };
  }
  const kind = strongest(kinds);
  return kind === undefined ? {} : { kind };
}

const RANKS: readonly ChangeKind[] = ["delta", "state", "messages", "all"];

/** Of several changes the one that says the most: each includes those before it. */
export function strongest(kinds: readonly (ChangeKind | undefined)[]): ChangeKind | undefined {
  const rank = Math.max(...kinds.map((kind) => (kind === undefined ? -1 : RANKS.indexOf(kind))));
  return RANKS[rank];
}

function deltaOf(frame: EventEnvelope): Delta | undefined {
  switch (frame.event) {
    case "stream.text_delta":
      return { ...pick(frame), kind: "text", delta: frame.delta };
    case "stream.thinking_delta":
      return { ...pick(frame), kind: "thinking", delta: frame.delta };
    case "stream.tool_call_delta":
      return { ...pick(frame), kind: "tool_call", delta: frame.delta, tool_call_id: frame.tool_call_id };
    case "stream.tool_call_start": {
      const { tool_call_id, name } = frame;
      return { ...pick(frame), kind: "tool_call", delta: "", tool_call_id, name };
    }
    default:
      return undefined;
  }
}

function pick(frame: { message_id: string; content_index: number; offset?: number }): Omit<Delta, "kind" | "delta"> {
  const { message_id, content_index, offset } = frame;
  return offset === undefined ? { message_id, content_index } : { message_id, content_index, offset };
}

function foldDelta(view: FoldedSession, delta: Delta): FoldResult {
  if (view.writing?.message_id !== delta.message_id) {
    // The message is over and known: a delta that waited somewhere tells nothing new.
    if (view.messages.at(-1)?.id === delta.message_id) return {};
    view.writing = begin(delta.message_id, "assistant");
  }
  return grow(view.writing, delta) ? { kind: "delta" } : { isHole: true };
}

function foldConversation(view: FoldedSession, frame: EventEnvelope): ChangeKind | undefined {
  switch (frame.event) {
    case "stream.message_start":
      // Those of people and tools come whole, at once.
      if (frame.role === "assistant") view.writing = begin(frame.message_id, "assistant");
      return frame.role === "assistant" ? "delta" : undefined;
    case "stream.message_end":
      takeMessage(view, frame.message);
      return "messages";
    case "messages":
      view.messages = [...frame.messages].sort((one, other) => one.idx - other.idx);
      delete view.writing;
      for (const message of view.messages) tools.learn(view.tools, message, isWorking(view));
      return "all";
    default:
      return undefined;
  }
}

function takeMessage(view: FoldedSession, message: Message): void {
  put(view.messages, message);
  tools.learn(view.tools, message, isWorking(view));
  if (view.writing?.message_id === message.id) delete view.writing;
  if (view.state) {
    const count = Math.max(view.state.message_count, message.idx + 1);
    if (count !== view.state.message_count) view.state = { ...view.state, message_count: count };
  }
}

function isWorking(view: FoldedSession): boolean {
  return view.state?.status === "working";
}

function foldNotice(view: FoldedSession, frame: EventEnvelope): ChangeKind | undefined {
  const notice = noticeOf(frame, view.seq, view.messages.at(-1)?.idx ?? -1);
  if (!notice) return undefined;
  view.notices.push(notice);
  if (view.notices.length > NOTICES_MAX) view.notices.shift();
  return "messages";
}

/** What is true now. */
function foldMoment(view: FoldedSession, frame: EventEnvelope): ChangeKind | undefined {
  return foldTools(view, frame) ?? foldQuestions(view, frame) ?? foldStatus(view, frame) ?? foldSettings(view, frame);
}

function foldTools(view: FoldedSession, frame: EventEnvelope): ChangeKind | undefined {
  switch (frame.event) {
    case "tool.start":
      tools.start(view.tools, frame.tool_call_id, frame.name, frame.input, frame.ts);
      return "state";
    case "tool.progress": {
      const known = view.tools.get(frame.tool_call_id);
      const run = known ?? tools.start(view.tools, frame.tool_call_id, frame.name, undefined, frame.ts);
      view.tools.set(frame.tool_call_id, { ...run, progress: frame.partial_output });
      return "state";
    }
    case "tool.end":
      tools.end(view.tools, frame, frame.ts);
      return "state";
    default:
      return undefined;
  }
}

function foldQuestions(view: FoldedSession, frame: EventEnvelope): ChangeKind | undefined {
  if (frame.event === "agent.input_needed") {
    const { request } = frame;
    const others = view.questions.filter((open) => open.request_id !== request.request_id);
    view.questions = [...others, request];
    view.askedAt.set(request.request_id, frame.ts);
  } else if (frame.event === "agent.input_resolved") {
    const request = view.questions.find((open) => open.request_id === frame.request_id);
    if (request) view.answered = [...view.answered, answeredOf(view, request, frame)].slice(-ANSWERED_MAX);
    view.questions = view.questions.filter((open) => open.request_id !== frame.request_id);
    view.askedAt.delete(frame.request_id);
  } else {
    return undefined;
  }
  patch(view, { pending_input: [...view.questions] });
  return "state";
}

function answeredOf(view: FoldedSession, request: InputRequest, frame: EventEnvelope & { event: "agent.input_resolved" }): Answered {
  const { outcome, user_id: userId, actor, decision, answer, ts: at } = frame;
  const rest = defined({ outcome, userId, actor, decision, answer });
  return { ...rest, request, at, seq: view.seq, afterIdx: view.messages.at(-1)?.idx ?? -1 };
}

function foldStatus(view: FoldedSession, frame: EventEnvelope): ChangeKind | undefined {
  switch (frame.event) {
    case "agent.working": {
      const { phase, detail } = frame;
      const status = phase === "initializing" ? "starting" : "working";
      patch(view, { status, phase, detail, error: undefined });
      return "state";
    }
    case "agent.idle":
      delete view.writing;
      tools.interruptAll(view.tools);
      patch(view, { status: "idle", phase: undefined, detail: undefined });
      return "messages";
    case "agent.error":
      if (frame.recoverable) return undefined;
      return over(view, { status: "failed", error: frame.error });
    case "session.closed":
      return over(view, { status: "closed" });
    case "session.created": {
      const { harness, cwd, capabilities } = frame;
      patch(view, { status: "idle", error: undefined, harness, ...defined({ cwd, capabilities }) });
      return "state";
    }
    default:
      return undefined;
  }
}

/** There is no agent any more: nothing is being written and nothing runs. Its questions are taken back one by one. */
function over(view: FoldedSession, change: Partial<SessionState>): ChangeKind {
  delete view.writing;
  tools.interruptAll(view.tools);
  patch(view, { phase: undefined, detail: undefined, ...change });
  return "messages";
}

function foldSettings(view: FoldedSession, frame: EventEnvelope): ChangeKind | undefined {
  switch (frame.event) {
    case "session.title_changed":
      patch(view, { title: frame.title });
      return "state";
    case "session.native_changed": {
      const { native_session_id, native_session_file } = frame;
      patch(view, { native_session_id, native_session_file });
      return "state";
    }
    case "session.branch_changed":
      patch(view, { branch: frame.branch });
      return "state";
    case "session.heartbeat":
      patch(view, { process: frame.process });
      return "state";
    case "config.model_changed":
      patch(view, { model: { provider: frame.provider, model_id: frame.model_id } });
      return "state";
    case "config.thinking_level_changed":
      patch(view, { thinking_level: frame.level });
      return "state";
    case "queue.changed":
      patch(view, { queue: frame.queue });
      return "state";
    case "status": {
      const texts = { ...view.state?.status_texts };
      if (frame.text === null) delete texts[frame.key];
      else texts[frame.key] = frame.text;
      patch(view, { status_texts: texts });
      return "state";
    }
    default:
      return undefined;
  }
}
