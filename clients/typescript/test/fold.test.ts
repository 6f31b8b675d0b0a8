/** Events in, view out: what the folds make of recorded and of made-up transcripts, without a server. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { takeAttach } from "../src/canonical/fold/attach.ts";
import { scalarCount, withoutFirst } from "../src/canonical/fold/deltas.ts";
import { fold } from "../src/canonical/fold/fold.ts";
import { emptySession, type FoldResult, type FoldedSession } from "../src/canonical/fold/folded-session.ts";
import type { AttachData, EventEnvelope, Message, MessagesData, SessionCreatedData, SessionState } from "../src/index.ts";

interface Transcript {
  attach: AttachData;
  events: EventEnvelope[];
  /** What `get_messages` said at the end. */
  messages: Message[];
}

/** Frames of the demo agent, recorded from the binary. */
function transcript(name: string): Transcript {
  const text = readFileSync(join(import.meta.dirname, "golden", `${name}.jsonl`), "utf8");
  const frames = text.trimEnd().split("\n").map((line) => JSON.parse(line) as Record<string, unknown>);
  const answer = (cmd: string) => frames.find((frame) => frame["cmd"] === cmd)?.["data"];
  const events = frames.filter((frame) => frame["event"] !== "response") as unknown as EventEnvelope[];
  const { messages } = answer("get_messages") as MessagesData;
  return { attach: answer("session.create") as SessionCreatedData, events, messages };
}

function begun(attach: AttachData): FoldedSession {
  const view = emptySession();
  takeAttach(view, attach, "first");
  return view;
}

const STATE: SessionState = {
  session_id: "s",
  runner_id: "r",
  harness: "pi",
  status: "idle",
  session_version: 0,
  seq: 0,
  message_count: 0,
  queue: { steering: [], follow_up: [] },
  pending_input: [],
};

const EMPTY: AttachData = { resume: "ok", seq: 0, state: STATE, pending_input: [], messages: [] };

/** Folds events of a session; those given a `seq` are records. */
function play(view: FoldedSession, events: object[]): FoldResult[] {
  return events.map((event) => fold(view, { session_id: "s", runner_id: "r", ts: 1_000, ...event } as EventEnvelope));
}

const said = (id: string, idx: number, role: Message["role"], text: string): Message => ({
  id,
  idx,
  role,
  parts: [{ type: "text", id: "p0", text }],
  created_at: 100 + idx,
});

for (const name of ["tools", "thinking", "question", "error"]) {
  test(`the recorded turn "${name}" ends as the hub has it`, () => {
    const { attach, events, messages } = transcript(name);
    const view = begun(attach);
    for (const event of events) assert.ok(!fold(view, event).isHole);
    assert.deepEqual(view.messages, messages);
    assert.equal(view.writing, undefined);
    assert.equal(view.state?.status, "idle");
    assert.equal(view.state?.message_count, messages.length);
    assert.deepEqual(view.questions, []);
    assert.ok([...view.tools.values()].every((tool) => tool.status === "done"));
    assert.equal(view.seq, events.findLast((event) => event.seq !== undefined)?.seq);
  });

  test(`the recorded turn "${name}" may come twice from any place on`, () => {
    const { attach, events, messages } = transcript(name);
    for (let from = 0; from < events.length; from += 1) {
      const view = begun(attach);
      for (const event of events) fold(view, event);
      const before = structuredClone(view);
      for (const event of events.slice(from)) if (event.seq !== undefined) fold(view, event);
      assert.deepEqual(view, before);
      assert.deepEqual(view.messages, messages);
    }
  });
}

test("what streams is the beginning of what it becomes", () => {
  const { attach, events } = transcript("thinking");
  const view = begun(attach);
  const seen: string[] = [];
  for (const event of events) {
    const { kind } = fold(view, event);
    if (kind === "delta") seen.push(view.writing?.blocks.map((block) => `${block.kind}:${block.text}`).join("|") ?? "");
  }
  assert.equal(seen[1], "thinking:The ");
  assert.match(seen.at(-1) ?? "", /^thinking:The user wants .* the simpler one\.\|text:I thought about it first; .*$/);
});

test("a question is there until it is answered", () => {
  const { attach, events } = transcript("question");
  const view = begun(attach);
  let asked = 0;
  for (const event of events) {
    fold(view, event);
    assert.deepEqual(view.state?.pending_input, [...view.questions]);
    asked = Math.max(asked, view.questions.length);
  }
  assert.equal(asked, 1);
  assert.deepEqual(view.answered.map(({ outcome, userId, answer }) => ({ outcome, userId, answer })), [{ outcome: "answered", userId: "owner", answer: "green" }]);
});

test("an error of the agent is a notice after the message it belongs to", () => {
  const { attach, events } = transcript("error");
  const view = begun(attach);
  for (const event of events) fold(view, event);
  const shown = view.notices.map(({ kind, text, afterIdx }) => ({ kind, text, afterIdx }));
  assert.deepEqual(shown, [{ kind: "error", text: "The demo model is overloaded (on purpose)", afterIdx: 1 }]);
});

test("offsets count characters, not units: what comes twice is dropped, what is missing is a hole", () => {
  const view = begun({ ...EMPTY, state: { ...STATE, status: "working" } });
  const delta = (text: string, offset: number) => ({ event: "stream.text_delta", message_id: "a", content_index: 0, delta: text, offset });
  const results = play(view, [
    { event: "stream.message_start", message_id: "a", role: "assistant" },
    delta("a😀", 0),
    delta("é👩‍🚀", 2),
    delta("😀é👩", 1),
    delta("!", 6),
    delta("lost", 9),
  ]);
  assert.deepEqual(results.map(({ isHole }) => isHole ?? false), [false, false, false, false, false, true]);
  assert.deepEqual(view.writing?.blocks, [{ content_index: 0, kind: "text", text: "a😀é👩‍🚀!", offset: 7 }]);
  assert.equal(scalarCount("a😀é👩‍🚀!"), [..."a😀é👩‍🚀!"].length);
  assert.equal(scalarCount("\ud800x\udc00"), 3);
  assert.equal(withoutFirst("😀é👩", 2), "👩");
});

test("a hundred thousand deltas cost what they are, not what they make", () => {
  const view = begun({ ...EMPTY, state: { ...STATE, status: "working" } });
  const round = (from: number): number => {
    const start = performance.now();
    for (let at = from; at < from + 50_000; at += 1) {
      play(view, [{ event: "stream.text_delta", message_id: "a", content_index: 0, delta: "word ", offset: at * 5 }]);
    }
    return performance.now() - start;
  };
  round(0);
  const early = round(50_000);
  const late = round(100_000);
  assert.equal(view.writing?.blocks[0]?.offset, 750_000);
  assert.ok(late < early * 4 + 50, `${early} ms, then ${late} ms`);
});

test("joining in the middle goes on where the answer to the attach ends", () => {
  const { attach, events, messages } = transcript("thinking");
  const all = begun(attach);
  const middle = events.findIndex((event) => event.event === "stream.text_delta") + 2;
  for (const event of events.slice(0, middle)) fold(all, event);
  const joined = emptySession();
  const state = { ...(all.state ?? assert.fail()), seq: all.seq };
  const partial = { message: structuredClone(all.writing ?? assert.fail()) };
  takeAttach(joined, { resume: "ok", seq: all.seq, state, pending_input: [], partial, messages: all.messages }, "first");
  // The delta before the answer may come once more.
  for (const event of events.slice(middle - 1)) assert.ok(!fold(joined, event).isHole);
  assert.deepEqual(joined.messages, messages);
});

test("records up to the answer's state are history: they change the conversation and not the moment", () => {
  const view = begun({ ...EMPTY, messages: [said("u", 0, "user", "hi")], seq: 1, state: { ...STATE, seq: 1, message_count: 1 } });
  const request = { type: "confirm", request_id: "q2", title: "Now?", message: "" } as const;
  const state: SessionState = { ...STATE, status: "working", seq: 5, pending_input: [request], title: "new", message_count: 2 };
  takeAttach(view, { resume: "ok", seq: 5, state, pending_input: [request] }, "resumed");
  play(view, [
    { seq: 2, event: "agent.input_needed", request: { type: "confirm", request_id: "q1", title: "Then?", message: "" } },
    { seq: 3, event: "agent.input_resolved", request_id: "q1" },
    { seq: 4, event: "stream.message_end", message: said("a", 1, "assistant", "hello") },
    { seq: 5, event: "agent.idle", reason: "stop" },
  ]);
  assert.deepEqual(view.questions, [request]);
  assert.equal(view.state?.status, "working");
  assert.deepEqual(view.messages.map(({ id }) => id), ["u", "a"]);
  play(view, [{ seq: 6, event: "agent.idle", reason: "stop" }]);
  assert.equal(view.state?.status, "idle");
});

test("a resync without messages keeps them; one with messages of another life starts anew", () => {
  const view = begun({ ...EMPTY, seq: 7, messages: [said("u", 0, "user", "hi")], state: { ...STATE, seq: 7 } });
  const partial = { message: { message_id: "a", role: "assistant", blocks: [] } } as const;
  const resync = (fields: object): AttachData => ({ ...EMPTY, resume: "gap", ...fields }) as AttachData;
  takeAttach(view, resync({ seq: 7, messages: undefined, partial, state: { ...STATE, status: "working", seq: 9 } }), "resync");
  assert.deepEqual([view.seq, view.messages.length, view.writing?.message_id], [7, 1, "a"]);
  play(view, [{ seq: 8, event: "stream.message_end", message: said("a", 1, "assistant", "yo") }]);
  assert.deepEqual([view.messages.length, view.writing], [2, undefined]);
  takeAttach(view, resync({ seq: 3, messages: [said("x", 0, "user", "other")], state: { ...STATE, seq: 3 } }), "resumed");
  assert.deepEqual([view.seq, view.messages.map(({ id }) => id)], [3, ["x"]]);
});

test("a record that is missing is a hole, and a conversation that moved is replaced", () => {
  const view = begun({ ...EMPTY, messages: [said("u", 0, "user", "hi")], seq: 1, state: { ...STATE, seq: 1 } });
  assert.deepEqual(play(view, [{ seq: 3, event: "notify", level: "info", message: "x" }]), [{ isHole: true }]);
  const forked = [said("u", 0, "user", "hi"), said("b", 1, "assistant", "another way")];
  play(view, [
    { seq: 2, event: "stream.message_end", message: said("a", 1, "assistant", "one way") },
    { seq: 3, event: "messages", messages: forked },
  ]);
  assert.deepEqual(view.messages, forked);
});

test("retries, compactions, notes and the life of a session are notices", () => {
  const view = begun(EMPTY);
  play(view, [
    { seq: 1, event: "session.created", resumed: false, harness: "pi" },
    { seq: 2, event: "retry.start", attempt: 1, max_attempts: 3, delay_ms: 2_000, error: "overloaded" },
    { seq: 3, event: "retry.end", success: false, attempt: 3, final_error: "still" },
    { seq: 4, event: "compact.start", reason: "threshold" },
    { seq: 5, event: "compact.end", success: true, will_retry: false, tokens_before: 9_000 },
    { seq: 6, event: "notify", level: "warning", message: "mind the gap" },
    { seq: 7, event: "agent.error", error: "it died", recoverable: false },
    { seq: 8, event: "session.closed", reason: "by a person" },
  ]);
  assert.deepEqual(view.notices.map(({ seq, kind, text }) => `${seq} ${kind}: ${text}`), [
    "1 lifecycle: The session began",
    "2 retry: Retry 1 of 3 in 2 s: overloaded",
    "3 retry: Gave up after 3 retries: still",
    "4 compact: Compacting the conversation",
    "5 compact: The conversation was compacted (9000 tokens before)",
    "6 notify: mind the gap",
    "7 error: it died",
    "8 lifecycle: The session was closed: by a person",
  ]);
  assert.equal(view.state?.status, "closed");
  assert.equal(view.state?.error, "it died");
});

test("a tool whose turn ends is interrupted, and one whose result is known is not", () => {
  const view = begun({ ...EMPTY, state: { ...STATE, status: "working" } });
  const call = (id: string) => ({ type: "tool_call", id, tool_call_id: id, name: "bash", input: { command: id }, status: "pending" });
  const calls = { ...said("a", 0, "assistant", ""), parts: [call("c1"), call("c2")] };
  const result = { type: "tool_result", id: "p", tool_call_id: "c1", output: "done", is_error: true, duration_ms: 40 };
  play(view, [
    { seq: 1, event: "stream.message_end", message: calls },
    { seq: 2, event: "tool.start", tool_call_id: "c1", name: "bash", input: { command: "c1" } },
    { event: "tool.progress", tool_call_id: "c1", name: "bash", partial_output: "half" },
  ]);
  assert.equal(view.tools.get("c1")?.progress, "half");
  play(view, [
    { seq: 3, event: "stream.message_end", message: { ...said("t", 1, "tool", ""), parts: [result] } },
    { seq: 4, event: "agent.idle", reason: "aborted" },
  ]);
  const shown = [...view.tools.values()].map(({ toolCallId, status, startedAt, endedAt }) => [toolCallId, status, startedAt, endedAt]);
  assert.deepEqual(shown, [
    ["c1", "error", 61, 101],
    ["c2", "interrupted", 100, undefined],
  ]);
});

test("a program's records make its state, and its output comes after its screen", () => {
  const run = { tool: "sh", command: "sh", cols: 80, rows: 24 };
  const terminal = { cols: 80, rows: 24, seq: 4, scrollback: "", screen: "$ ", alternate: false };
  const state: SessionState = { ...STATE, harness: "pty", status: "working", seq: 4, run };
  const view = begun({ ...EMPTY, resume: "gap", seq: 4, state, terminal });
  play(view, [
    { seq: 5, event: "run.output", stream: "stdout", text: "Go on? " },
    { seq: 6, event: "agent.input_needed", request: { type: "confirm", request_id: "q", title: "Go on?", message: "" } },
    { seq: 7, event: "run.awaiting_input", reason: "permission", prompt: "Go on?", request_id: "q" },
  ]);
  assert.equal(view.state?.run?.awaiting?.request_id, "q");
  play(view, [
    { seq: 8, event: "agent.input_resolved", request_id: "q" },
    { seq: 9, event: "run.resized", cols: 100, rows: 30 },
    { seq: 10, event: "run.output", stream: "stdout", text: "bye" },
    { seq: 11, event: "run.exited", exit_code: 3 },
  ]);
  assert.deepEqual(view.outputs, [{ text: "Go on? ", seq: 5 }, { text: "bye", seq: 10 }]);
  assert.equal(view.state?.status, "closed");
  const { exit_code, cols, awaiting } = view.state?.run ?? assert.fail();
  assert.deepEqual([exit_code, cols, awaiting], [3, 100, undefined]);
});

test("settings and unknown events", () => {
  const view = begun(EMPTY);
  play(view, [
    { seq: 1, event: "session.title_changed", title: "t" },
    { seq: 2, event: "config.model_changed", provider: "p", model_id: "m" },
    { seq: 3, event: "config.thinking_level_changed", level: "high" },
    { seq: 4, event: "queue.changed", queue: { steering: ["a"], follow_up: [] } },
    { event: "status", key: "k", text: "v" },
    { event: "status", key: "gone", text: null },
    { seq: 5, event: "x-pi.something", payload: 1 },
    { seq: 6, event: "of.tomorrow" },
  ]);
  const { title, model, thinking_level, queue, status_texts, seq } = view.state ?? assert.fail();
  assert.deepEqual([title, model, thinking_level], ["t", { provider: "p", model_id: "m" }, "high"]);
  assert.deepEqual([queue.steering, status_texts, seq], [["a"], { k: "v" }, 6]);
});
