/** What the real hub does rarely, or never on purpose. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { CommandError, IndeterminateError, TimedOutError, type Message } from "../src/index.ts";
import { FakeHub, type Said } from "./fake-hub.ts";
import { eventually } from "./server.ts";

const LIMIT = { timeout: 60_000 };

const said = (id: string, idx: number, fields: Partial<Message> = {}): Message => ({
  id,
  idx,
  role: "user",
  parts: [{ type: "text", id: "p0", text: id }],
  created_at: idx,
  ...fields,
});

async function loaded(hub: FakeHub, client: ReturnType<FakeHub["client"]>) {
  const session = client.session("s");
  await eventually("the session is loaded", () => session.loaded);
  return session;
}

test("an outcome nobody knows asks the person: again under a new identity, or never", LIMIT, async (context) => {
  const hub = new FakeHub();
  const client = hub.client(context);
  const session = await loaded(hub, client);
  hub.answers.set("prompt", (command) => hub.refuse(command, "The process died", { indeterminate: true }));
  const first = session.send("one");
  const second = session.send("two");
  await eventually("both are unknown", () => session.pending.every(({ status }) => status === "indeterminate"));
  assert.match(session.pending[0]?.error ?? "", /died/);
  hub.answers.set("prompt", (command) => hub.answer(command, { disposition: "started" }));
  session.resend(first);
  session.discard(second);
  await eventually("it was taken", () => session.pending[0]?.status === "sent");
  const again = session.pending[0]?.clientId ?? "";
  assert.notEqual(again, first);
  assert.deepEqual(session.pending.map(({ text }) => text), ["one"]);
  const keys = hub.of("prompt").map((command) => command.idempotency_key);
  assert.deepEqual(keys, [first, second, again]);
  session.resend(again);
  assert.equal(hub.of("prompt").length, 3, "what was taken is not sent again");
  hub.event({ event: "stream.message_end", message: said("m", 0, { client_id: again }) }, true);
  assert.deepEqual(session.pending, []);
});

test("a refusal is shown with its reason, and what was sent and never read goes with the turn", LIMIT, async (context) => {
  const hub = new FakeHub();
  const session = await loaded(hub, hub.client(context));
  hub.answers.set("prompt", (command) => hub.refuse(command, "No such model"));
  session.send("one");
  await eventually("it failed", () => session.pending[0]?.status === "failed");
  assert.equal(session.pending[0]?.error, "No such model");
  session.discard(session.pending[0]?.clientId ?? "");
  hub.answers.set("prompt", (command) => hub.answer(command, { disposition: "queued" }));
  session.send("two");
  session.send("three");
  await eventually("both were taken", () => session.pending.every(({ status }) => status === "sent"));
  hub.event({ event: "agent.working", phase: "generating" });
  hub.event({ event: "queue.changed", queue: { steering: [], follow_up: ["three"] } }, true);
  assert.equal(session.pending.length, 2);
  hub.event({ event: "agent.idle", reason: "aborted" }, true);
  assert.deepEqual(session.pending.map(({ text }) => text), ["three"]);
  hub.answers.set("prompt", (command) => hub.answer(command, { disposition: "handled" }));
  const handled = session.send("/command");
  await eventually("a command needs no message", () => session.pending.every(({ clientId }) => clientId !== handled));
});

test("changes that come together are told together", LIMIT, async (context) => {
  const hub = new FakeHub();
  const session = await loaded(hub, hub.client(context));
  await new Promise((resume) => setTimeout(resume, 0));
  const told: string[] = [];
  session.onChange(({ kind }) => told.push(kind));
  const { revision } = session;
  hub.event({ event: "stream.message_start", message_id: "a", role: "assistant" });
  for (let at = 0; at < 100; at += 1) {
    hub.event({ event: "stream.text_delta", message_id: "a", content_index: 0, delta: "x", offset: at });
  }
  assert.deepEqual(told, []);
  assert.equal(session.partial?.message?.blocks[0]?.text.length, 100);
  await Promise.resolve();
  assert.deepEqual(told, ["delta"]);
  assert.equal(session.revision, revision + 101);
  const { messages, partial, tools } = session;
  assert.equal(session.messages, messages, "the same until something changes");
  assert.equal(session.partial, partial);
  hub.event({ event: "stream.text_delta", message_id: "a", content_index: 0, delta: "y", offset: 100 });
  assert.notEqual(session.partial, partial);
  assert.equal(partial?.message?.blocks[0]?.text.length, 100, "what was given out stays as it was");
  assert.equal(session.messages, messages, "a delta changes no message");
  await Promise.resolve();
  told.length = 0;
  hub.event({ event: "tool.progress", tool_call_id: "t", name: "bash", partial_output: "x" });
  assert.equal(session.messages, messages, "nor does a tool");
  assert.equal(session.partial?.tools[0]?.progress, "x");
  await Promise.resolve();
  hub.event({ event: "stream.message_end", message: said("a", 0, { role: "assistant" }) }, true);
  await Promise.resolve();
  assert.deepEqual(told, ["state", "messages"]);
  assert.notEqual(session.messages, messages);
  assert.notEqual(session.tools, tools);
});

test("a delta or a record that is missing makes the client ask, once", LIMIT, async (context) => {
  const hub = new FakeHub();
  const session = await loaded(hub, hub.client(context));
  const text = (delta: string, offset: number) => ({ event: "stream.text_delta", message_id: "a", content_index: 0, delta, offset });
  hub.event({ event: "stream.message_start", message_id: "a", role: "assistant" });
  hub.event(text("one ", 0));
  const block = { content_index: 0, kind: "text", text: "one two three ", offset: 14 } as const;
  const partial = { message: { message_id: "a", role: "assistant" as const, blocks: [block] } };
  hub.answers.set("session.attach", (command) => {
    assert.equal(command["after"], hub.seq);
    hub.answer(command, hub.attach({ partial, messages: undefined }));
  });
  hub.event(text("three ", 8));
  hub.event(text("four ", 14));
  await eventually("the text is whole", () => session.partial?.message?.blocks[0]?.text === "one two three ");
  hub.event(text("four ", 14));
  assert.equal(session.partial?.message?.blocks[0]?.text, "one two three four ");
  assert.equal(hub.of("session.attach").length, 2);
  const end = said("a", 0, { role: "assistant" });
  hub.answers.set("session.attach", (command) => {
    hub.answer(command, hub.attach({ messages: undefined }));
    hub.say({ channel: "agent", session_id: "s", runner_id: "r", ts: 1, seq: 1, event: "stream.message_end", message: end });
    hub.say({ channel: "agent", session_id: "s", runner_id: "r", ts: 1, seq: 2, event: "agent.idle" });
  });
  hub.seq = 1;
  hub.answers.set("session.attach", ((answer) => (command: Said) => {
    assert.equal(command["after"], 0);
    answer?.(command);
  })(hub.answers.get("session.attach")));
  hub.event({ event: "agent.idle" }, true);
  await eventually("the message is there", () => session.messages.length === 1);
  assert.equal(session.partial, undefined);
});

test("a resync is folded, and the cursor goes on from it", LIMIT, async (context) => {
  const hub = new FakeHub();
  hub.seq = 4;
  const session = await loaded(hub, hub.client(context));
  hub.event({ event: "stream.message_start", message_id: "a", role: "assistant" });
  const request = { type: "confirm" as const, request_id: "q", title: "?", message: "" };
  const state = { ...hub.attach().state, seq: 6, status: "working" as const };
  hub.event({ event: "session.resync", ...hub.attach({ resume: "gap", seq: 4, replay_until: 6, messages: undefined, state }), pending_input: [request] });
  assert.deepEqual(session.questions, [request]);
  assert.equal(session.partial, undefined);
  hub.event({ event: "stream.message_end", message: said("a", 0) }, true);
  hub.event({ event: "agent.input_resolved", request_id: "q" }, true);
  assert.equal(session.messages.length, 1);
  assert.deepEqual(session.questions, [request], "the answer was of that record or later");
  hub.event({ event: "agent.input_resolved", request_id: "q" }, true);
  assert.deepEqual(session.questions, []);
});

test("a large session holds only its newest messages until more are asked for", LIMIT, async (context) => {
  const hub = new FakeHub();
  hub.messageCount = 10_000;
  const all = Array.from({ length: 10_000 }, (_, idx) => said(`m${idx}`, idx));
  hub.messages = all.slice(-200);
  hub.answers.set("get_messages", (command) => {
    const before = Number(command["before"] ?? 10_000);
    const page = all.slice(Math.max(0, before - Number(command["limit"])), before);
    hub.answer(command, { messages: page, total: 10_000, before: page[0]?.idx });
  });
  const session = await loaded(hub, hub.client(context));
  assert.deepEqual([session.messages.length, session.hasOlder, session.gaps.length], [200, true, 0]);
  assert.equal(hub.of("get_messages").length, 0);
  await session.loadOlder();
  assert.deepEqual([session.messages.length, session.messages[0]?.idx], [400, 9_600]);
  await session.loadAround(5_000);
  assert.deepEqual([session.messages.length, session.messages[0]?.idx], [600, 4_900]);
  assert.deepEqual(session.gaps, [{ from: 5_100, to: 9_599 }]);
  assert.ok(session.messages.some(({ idx }) => idx === 5_000));
  await session.loadGap(session.gaps[0] ?? assert.fail());
  assert.deepEqual(session.gaps, [{ from: 5_300, to: 9_599 }]);
  while (session.gaps[0]) await session.loadGap(session.gaps[0]);
  assert.deepEqual(session.messages, all.slice(4_900));
});

test("a page of a conversation that is another one by now is not taken", LIMIT, async (context) => {
  const hub = new FakeHub();
  hub.messages = [said("n", 5)];
  const session = await loaded(hub, hub.client(context));
  const asked: Said[] = [];
  hub.answers.set("get_messages", (command) => void asked.push(command));
  const loading = session.loadOlder();
  await eventually("the page is asked for", () => asked.length === 1);
  hub.event({ event: "messages", messages: [said("x", 0)] }, true);
  hub.answer(asked[0] as Said, { messages: [said("old", 4)], total: 6 });
  await loading;
  assert.deepEqual(session.messages.map(({ id }) => id), ["x"]);
});

test("errors have their kinds, refusals that pass are tried again, and signals take calls back", LIMIT, async (context) => {
  const hub = new FakeHub();
  const client = hub.client(context);
  hub.answers.set("get_state", (command) => hub.refuse(command, "no", { timed_out: true }));
  await assert.rejects(client.call("get_state", {}, { sessionId: "s" }), TimedOutError);
  hub.answers.set("abort", (command) => hub.refuse(command, "no", { indeterminate: true }));
  await assert.rejects(client.call("abort", {}, { sessionId: "s" }), IndeterminateError);
  let refusals = 0;
  hub.answers.set("get_stats", (command) => {
    refusals += 1;
    if (refusals <= 2) hub.refuse(command, "Wait for some", { code: "too_many_in_flight", limit: 1024 });
    else hub.answer(command, { total_messages: 1 });
  });
  await client.call("get_stats", {}, { sessionId: "s" });
  assert.equal(refusals, 3);
  hub.answers.set("get_models", ({ id }) => hub.say({ channel: "system", type: "error", id, error: "unreadable" }));
  await assert.rejects(client.call("get_models", {}, { sessionId: "s" }), CommandError);
  const progress: unknown[] = [];
  const abort = new AbortController();
  hub.answers.set("host.bash", ({ id, cmd }) => hub.say({ channel: "agent", event: "progress", id, cmd, data: { text: "hi" } }));
  const running = client.call("host.bash", { command: "sleep 9" }, { signal: abort.signal, onProgress: (data) => progress.push(data) });
  await eventually("it says something", () => progress.length === 1);
  assert.equal(client.pendingCalls, 1);
  abort.abort();
  await assert.rejects(running, { name: "AbortError" });
  assert.equal(client.pendingCalls, 0);
  const [command] = hub.of("host.bash");
  await eventually("the hub is told", () => hub.of("cancel").some((cancel) => cancel["target"] === command?.id));
  assert.equal(typeof command?.idempotency_key, "string");
  assert.equal(hub.of("get_stats")[0]?.idempotency_key, undefined);
});

test("a watch goes on after a loss, and says that something may have been missed", LIMIT, async (context) => {
  const hub = new FakeHub();
  const client = hub.client(context);
  hub.answers.set("fs.watch", () => {});
  const abort = new AbortController();
  const news: unknown[] = [];
  const watching = client.call("fs.watch", {}, { sessionId: "s", signal: abort.signal, onProgress: (data) => news.push(data) });
  await eventually("it is asked for", () => hub.of("fs.watch").length === 1);
  hub.cut();
  await eventually("it is asked for again", () => hub.of("fs.watch").length === 2);
  assert.deepEqual(news, [{ changes: [], overflow: true }]);
  abort.abort();
  await assert.rejects(watching);
});

test("sends outlive a reload under their identity, and presence is told again", LIMIT, async (context) => {
  const kept = new Map<string, string>();
  const storage = { getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, text: string) => void kept.set(key, text) };
  const hub = new FakeHub();
  const before = hub.client(context, { storage });
  hub.answers.set("prompt", () => {});
  before.setPresence({ visible: true, sessionId: "s" });
  const clientId = before.session("s").send("do not lose me");
  await eventually("it is under way", () => hub.of("prompt").length === 1);
  before.close();
  hub.answers.set("prompt", (command) => hub.answer(command, { disposition: "started" }));
  const working = { ...hub.attach().state, status: "working" as const };
  hub.answers.set("session.attach", (command) => hub.answer(command, hub.attach({ state: working })));
  const after = hub.client(context, { storage });
  after.setPresence({ visible: false });
  const session = after.session("s");
  await eventually("it was taken", () => session.pending[0]?.status === "sent");
  assert.deepEqual(hub.of("prompt").map((command) => command.idempotency_key), [clientId, clientId]);
  hub.cut();
  await eventually("the client is back", () => hub.connections.length === 3 && after.connection.state === "live");
  const presence = hub.said.filter((frame) => frame["type"] === "presence").map((frame) => frame["visible"]);
  assert.deepEqual(presence, [true, false, false]);
  assert.equal(kept.get("qd.sends"), "{}");
});

test("a session that is deleted is gone, and one that is not there never was", LIMIT, async (context) => {
  const hub = new FakeHub();
  const client = hub.client(context);
  const session = await loaded(hub, client);
  hub.say({ channel: "system", type: "session.changed", session_id: "s", runner_id: "r", change: "deleted" });
  assert.ok(session.isGone);
  let refusals = 0;
  hub.answers.set("session.attach", (command) => {
    refusals += 1;
    if (refusals === 1) hub.refuse(command, "The runner is busy", { code: "busy" });
    else hub.refuse(command, "It is not there", { code: "session_not_found" });
  });
  const again = client.session("s");
  assert.notEqual(again, session);
  await eventually("a refusal is shown", () => again.error === "The runner is busy");
  await eventually("it is gone", () => again.isGone);
  assert.ok(!again.loaded);
});

test("a session nobody looks at is left after a while, and one that is made is not followed", LIMIT, async (context) => {
  const hub = new FakeHub();
  const client = hub.client(context);
  const session = await loaded(hub, client);
  assert.equal(client.session("s"), session);
  session.release();
  session.release();
  session.release();
  assert.equal(client.session("s"), session, "back in time");
  session.release();
  await eventually("it is left", () => hub.of("session.detach").length === 1);
  hub.answers.set("session.create", (command) => hub.answer(command, { ...hub.attach(), session_id: "new" }));
  await client.call("session.create", { config: { harness: "demo" } });
  await eventually("the hub need not tell of it", () => hub.of("session.detach").some(({ session_id }) => session_id === "new"));
});

test("a hub of another version is refused", LIMIT, async (context) => {
  const hub = new FakeHub();
  const client = hub.client(context);
  hub.connections[0]?.message(JSON.stringify({ channel: "system", type: "connected", protocol_version: "2.0.0", server_version: "x", connection_id: "c" }));
  assert.equal(client.connection.state, "refused");
  assert.match(client.connection.error ?? "", /2\.0\.0/);
});

test("after a sleep only the answer to the question counts, not what was under way before", LIMIT, async (context) => {
  const hub = new FakeHub();
  hub.answers.set("cancel", () => {});
  const client = hub.client(context, { silenceMs: 60_000, freezeMs: 200 });
  await loaded(hub, client);
  // It sleeps and is asked with the other, and never answers.
  const mute = new FakeHub();
  mute.answers.set("cancel", () => {});
  const sleepFor = (milliseconds: number) => {
    const until = Date.now() + milliseconds;
    while (Date.now() < until);
  };
  sleepFor(1_400);
  await eventually("the hub is asked", () => hub.of("cancel").length === 1);
  hub.say({ channel: "system", type: "notice", message: "of before" });
  await eventually("the connection is given up", () => hub.connections.length === 2);
  hub.answers.set("cancel", (command) => hub.refuse(command, "No such command"));
  await eventually("the client is back", () => client.connection.state === "live");
  await loaded(mute, mute.client(context, { silenceMs: 60_000, freezeMs: 200 }));
  sleepFor(1_400);
  await eventually("the hub is asked again", () => hub.of("cancel").length === 2);
  await eventually("one that does not answer is given up", () => mute.connections.length === 2);
  assert.equal(hub.connections.length, 2, "who answers is kept");
});
