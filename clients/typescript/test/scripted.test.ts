/** What the real server does rarely, or never on purpose. */
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { test, type TestContext } from "node:test";

import { ConnectionError, PiServerClient, TooLargeError, type ClientOptions } from "../src/pi-server.ts";
import { stdioTransport } from "../src/stdio.ts";
import { begin, change, type AgentMessage } from "../src/pi-server/streaming.ts";
import { Versions } from "../src/pi-server/versions.ts";
import { ScriptedServer, type Sent } from "./scripted.ts";
import { eventually } from "./server.ts";

function start(context: TestContext, options: ClientOptions = {}): { server: ScriptedServer; client: PiServerClient } {
  const server = new ScriptedServer();
  const client = new PiServerClient({ transport: server.transport, silenceMs: 0, ...options });
  context.after(() => client.close());
  return { server, client };
}

/** Answers `switch_session` and `get_messages` as the real server does. */
function conversation(server: ScriptedServer, messages: () => object[]): void {
  server.onCommand = (command: Sent) => {
    if (command.type === "get_messages") return server.answer(command, { data: { messages: messages() } });
    server.answer(command, { data: {} });
    if (command.type === "switch_session") server.resync(command.sessionId ?? "");
  };
}

const user = (text: string, timestamp: number) => ({ role: "user", content: [{ type: "text", text }], timestamp });

test("a reading that fails is tried again, and what comes meanwhile is there once", { timeout: 20_000 }, async (context) => {
  const { server, client } = start(context);
  const stored = [user("one", 1)];
  conversation(server, () => stored);
  const follower = await client.follow("s");
  const answer = server.onCommand;
  let failures = 0;
  server.onCommand = (command) => {
    if (command.type !== "get_messages" || failures >= 3) return answer(command);
    failures += 1;
    server.refuse(command, "Runner is away");
  };
  const updates: string[] = [];
  follower.onUpdate((update) => updates.push(update.type === "event" ? update.event.type : update.type));
  server.resync("s");
  stored.push(user("two", 2));
  server.event("s", { type: "message_end", message: user("two", 2) });
  server.event("s", { type: "agent_settled" });
  await eventually("the reading", () => updates.includes("resync"));
  assert.equal(failures, 3);
  assert.deepEqual(follower.messages, stored);
  assert.deepEqual(updates, ["message_end", "agent_settled", "resync"]);
  // The order of fields is another in events of pi.
  const again = { timestamp: 2, content: [{ text: "two", type: "text" }], role: "user" };
  server.event("s", { type: "message_end", message: again });
  assert.deepEqual(follower.messages, stored);
  client.close();
});

test("what events do not tell is read anew, and an old reading never wins", { timeout: 20_000 }, async (context) => {
  const { server, client } = start(context);
  let stored: object[] = [user("one", 1)];
  conversation(server, () => stored);
  const follower = await client.follow("s");
  for (const type of ["conversation_changed", "compaction_end", "auto_compaction_end", "auto_retry_start"]) {
    stored = [user(type, 5)];
    server.event("s", { type });
    await eventually(type, () => JSON.stringify(follower.messages) === JSON.stringify(stored));
  }
  const held: Sent[] = [];
  server.onCommand = (command) => void held.push(command);
  server.event("s", { type: "conversation_changed", reason: "added" });
  server.event("s", { type: "message_end", message: user("of the old conversation", 6) });
  server.event("s", { type: "conversation_changed", reason: "replaced" });
  server.event("s", { type: "message_end", message: user("of the new one", 7) });
  await eventually("both readings", () => held.length === 2);
  server.answer(held[1] as Sent, { data: { messages: [] } });
  server.answer(held[0] as Sent, { data: { messages: [user("old", 1)] } });
  await eventually("the newest", () => follower.messages.length === 1);
  assert.deepEqual(follower.messages, [user("of the new one", 7)]);
  // More than is kept meanwhile: it is asked once more.
  server.event("s", { type: "conversation_changed", reason: "added" });
  await eventually("a reading", () => held.length === 3);
  for (let number = 0; number < 1_001; number += 1) {
    server.event("s", { type: "message_end", message: user(`flood ${number}`, 10 + number) });
  }
  await eventually("another", () => held.length === 4);
  client.close();
});

test("a follower ends only when its session is gone", { timeout: 20_000 }, async (context) => {
  const { server, client } = start(context);
  conversation(server, () => []);
  const follower = await client.follow("s");
  const answer = server.onCommand;
  let refusal: string | undefined = "Runner r1 is away";
  server.onCommand = (command) => {
    if (command.type === "switch_session" && refusal !== undefined) return server.refuse(command, refusal);
    answer(command);
  };
  let ended = 0;
  follower.onUpdate((update) => (ended += update.type === "ended" ? 1 : 0));
  server.cut();
  await eventually("some attempts", () => server.count("switch_session") >= 3);
  assert.equal(ended, 0);
  refusal = undefined;
  await eventually("it is back", () => !follower.isLost);
  server.onCommand = (command) => server.refuse(command, "Session s not found");
  server.event("s", { type: "conversation_changed", reason: "added" });
  await eventually("the end", () => ended === 1);
  client.close();
  assert.equal(ended, 1);
});

test("following twice waits for the same, and unfollow rejects who waits", { timeout: 20_000 }, async (context) => {
  const { server, client } = start(context);
  const first = client.follow("s");
  const second = client.follow("s");
  let isSecondDone = false;
  void second.then(() => (isSecondDone = true));
  await eventually("the question", () => server.count("switch_session") === 1);
  assert.equal(isSecondDone, false);
  conversation(server, () => []);
  server.onCommand(server.sent[0] as Sent);
  assert.equal(await first, await second);
  server.onCommand = () => {};
  const third = client.follow("t");
  client.unfollow("t");
  await assert.rejects(third, /no longer followed/);
  client.close();
});

test("the answer being written is folded as pi writes it", () => {
  const recordings = resolve(import.meta.dirname, "../../../crates/core/tests/fixtures/pi");
  for (const version of readdirSync(recordings)) {
    for (const name of ["simple", "thinking", "tool_bash"]) {
      const folded = fold(readFileSync(join(recordings, version, `${name}.jsonl`), "utf8").trim().split("\n"));
      assert.ok(folded.length > 0, `${version} ${name}`);
      for (const [written, ended] of folded) assert.deepEqual(written, ended, `${version} ${name}`);
    }
  }
});

/** Content and usage of every answer: as it was written, and as it ended. */
function fold(lines: string[]): [object, object][] {
  const folded: [object, object][] = [];
  let streaming: AgentMessage | undefined;
  const bare = ({ content, usage }: AgentMessage) => ({
    usage,
    content: (content as object[]).map((part) => ({ ...part, thinkingSignature: undefined })),
  });
  for (const line of lines) {
    const event = (JSON.parse(line) as { rec: { type?: string; message?: AgentMessage } }).rec;
    const answer = event.message?.role === "assistant" ? event.message : undefined;
    if (answer && event.type === "message_start") streaming = begin(answer);
    if (streaming && event.type === "message_update") streaming = change(streaming, event);
    if (!streaming || !answer || event.type !== "message_end") continue;
    folded.push([bare(streaming), bare(answer)]);
    streaming = undefined;
  }
  return folded;
}

test("deltas go on where a resync was", { timeout: 20_000 }, async (context) => {
  const { server, client } = start(context);
  conversation(server, () => []);
  const follower = await client.follow("s");
  const written = { role: "assistant", content: [{ type: "text", text: "Hel" }], timestamp: 1 };
  server.resync("s", written);
  const update = (event: object) => server.event("s", { type: "message_update", assistantMessageEvent: event });
  update({ type: "text_delta", contentIndex: 0, delta: "lo" });
  update({ type: "toolcall_start", contentIndex: 1, id: "c", toolName: "bash" });
  update({ type: "toolcall_delta", contentIndex: 1, delta: '{"comm' });
  assert.deepEqual(follower.streaming?.content, [
    { type: "text", text: "Hello" },
    { type: "toolCall", id: "c", name: "bash", arguments: {}, partialJson: '{"comm' },
  ]);
  // After a gap nothing is added to what may be old.
  server.event("s", { type: "event_gap", missed: 3 });
  update({ type: "text_delta", contentIndex: 0, delta: "?" });
  assert.equal((follower.streaming?.content as { text: string }[])[0]?.text, "Hello");
  client.close();
});

test("a command that is too large fails at once, by either side's limit", { timeout: 20_000 }, async (context) => {
  const { server, client } = start(context, { messageBytesMax: 1_000 });
  const message = "é".repeat(450);
  await assert.rejects(client.call("prompt", { sessionId: "s", message }), /has 1\d\d\d bytes and the server takes 1000/);
  assert.equal(server.sent.length, 0);
  server.onCommand = (command) => {
    if (command.type !== "prompt") return server.answer(command, { data: { sessions: [] } });
    server.say({ type: "response", command: "unknown", success: false, error: "Message size 700 exceeds limit 500" });
  };
  const other = client.call("list_sessions", {});
  await assert.rejects(client.call("prompt", { sessionId: "s", message: "x".repeat(500) }), TooLargeError);
  assert.deepEqual(await other, { sessions: [] });
  client.close();
});

test("a command that costs every connection is given up, others are not", { timeout: 20_000 }, async (context) => {
  const { server, client } = start(context, { resendsMax: 4 });
  server.onCommand = (command) => (command.type === "export_html" ? server.cut() : undefined);
  const poison = client.call("export_html", { sessionId: "s" });
  const innocent = client.call("set_session_name", { sessionId: "s", name: "n" });
  await assert.rejects(poison, /lost 5 times right after this command was sent/);
  server.onCommand = (command) => server.answer(command);
  await innocent;
  await client.call("abort", { sessionId: "s" });
  client.close();
});

test("the first failure is told, unless the client shall keep trying", { timeout: 20_000 }, async (context) => {
  const told: string[] = [];
  const onConnection = (state: string, reason?: string) => void told.push(`${state}: ${reason ?? ""}`);
  const nobody = new PiServerClient({ url: "ws://127.0.0.1:1", token: "secret", onConnection });
  await assert.rejects(nobody.connect(), (error) => {
    assert.ok(error instanceof ConnectionError);
    assert.match(error.message, /could not connect to ws:\/\/127.0.0.1:1\/.*check that a server listens there.*token/);
    assert.doesNotMatch(error.message, /secret/);
    return true;
  });
  await assert.rejects(nobody.call("list_sessions", {}), ConnectionError);
  await assert.rejects(nobody.follow("s"), ConnectionError);
  assert.equal(told.length, 3);
  nobody.close();
  const missing = new PiServerClient({ transport: stdioTransport({ command: ["/no/qd/here"] }) });
  await assert.rejects(missing.connect(), /\/no\/qd\/here could not be started .*ENOENT.*check the command/);
  const patient = new PiServerClient({ url: "ws://127.0.0.1:1", keepTrying: true, onConnection });
  context.after(() => patient.close());
  const connecting = patient.connect();
  await eventually("attempts", () => told.length >= 6);
  patient.close();
  await assert.rejects(connecting, /closed/);
});

test("a connection that is open on one side only is noticed", { timeout: 20_000 }, async (context) => {
  const reasons: (string | undefined)[] = [];
  const { server, client } = start(context, { silenceMs: 100, onConnection: (state, reason) => state === "disconnected" && reasons.push(reason) });
  conversation(server, () => []);
  await client.follow("s");
  await eventually("probes that are answered", () => server.count("health_check") >= 2);
  assert.equal(server.connections.length, 1);
  const answer = server.onCommand;
  server.onCommand = () => {};
  await eventually("it is noticed", () => server.connections.length === 2);
  assert.match(reasons[0] ?? "", /said nothing for 200 ms/);
  server.onCommand = answer;
  client.close();
  const { server: silent, client: other } = start(context, { silenceMs: 100 });
  silent.isGreeting = false;
  await assert.rejects(other.connect(), /said nothing for 100 ms/);
});

test("a refused command holds back its own session only, and no reads or controls", { timeout: 20_000 }, async (context) => {
  const { server, client } = start(context);
  let isRefusing = true;
  server.onCommand = (command) => {
    if (isRefusing && command.type === "prompt") server.refuse(command, "Rate limit exceeded (100 commands/minute)");
    else server.answer(command, { data: {} });
  };
  const order: string[] = [];
  const prompt = client.call("prompt", { sessionId: "a", message: "m" }).then(() => order.push("prompt"));
  await eventually("a refusal", () => server.count("prompt") >= 2);
  const name = client.call("set_session_name", { sessionId: "a", name: "n" }).then(() => order.push("name"));
  await client.call("get_state", { sessionId: "a" });
  await client.call("abort", { sessionId: "a" });
  await client.call("steer", { sessionId: "a", message: "m" });
  await client.call("set_session_name", { sessionId: "b", name: "n" });
  assert.equal(server.sent.filter((sent) => sent.type === "set_session_name" && sent.sessionId === "a").length, 0);
  isRefusing = false;
  await Promise.all([prompt, name]);
  assert.deepEqual(order, ["prompt", "name"]);
  client.close();
});

test("what is replayed never lowers a version", () => {
  const versions = new Versions();
  const told = (sessionVersion: number, replayed = false) => {
    versions.see("s", { sessionVersion, replayed });
    return versions.newest.get("s");
  };
  assert.deepEqual([told(5), told(3, true), told(4), told(7, true), told(8)], [5, 5, 5, 7, 8]);
  versions.connected();
  assert.deepEqual([told(2, true), told(1), told(0)], [8, 1, 1]);
});

test("signals are let go, and callbacks that throw break nothing", { timeout: 20_000 }, async (context) => {
  const thrown: unknown[] = [];
  const listeners = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", (error) => thrown.push(error));
  const fail = () => {
    throw new Error("of the application");
  };
  const { server, client } = start(context, { onMessage: fail, onConnection: fail });
  conversation(server, () => []);
  const follower = await client.follow("s");
  follower.onUpdate(fail);
  server.event("s", { type: "agent_settled" });
  const controller = new AbortController();
  let held = 0;
  const { signal } = controller;
  const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
  signal.addEventListener = (...words: Parameters<typeof add>) => ((held += 1), add(...words));
  signal.removeEventListener = (...words: Parameters<typeof remove>) => ((held -= 1), remove(...words));
  await client.call("get_state", { sessionId: "s" }, { signal });
  assert.equal(held, 0);
  server.onCommand = () => {};
  const given = client.call("get_state", { sessionId: "s" }, { signal });
  controller.abort(new Error("enough"));
  await assert.rejects(given, /enough/);
  assert.equal(held, 0);
  client.close();
  // server_ready, connected, the resync, its update, the event, its update, disconnected.
  await eventually("they are reported", () => thrown.length >= 6);
  process.removeAllListeners("uncaughtException");
  for (const listener of listeners) process.on("uncaughtException", listener);
});

test("the last answers of a server that ends are read", { timeout: 20_000 }, async () => {
  const ready = JSON.stringify({ type: "server_ready", data: { serverVersion: "t", protocolVersion: "1.0.0", transports: [] } });
  const script = `
    console.log(${JSON.stringify(ready)});
    process.stdin.once("data", (chunk) => {
      const { id } = JSON.parse(String(chunk));
      const data = { sessions: [], text: "x".repeat(1 << 20) };
      process.stdout.write(JSON.stringify({ type: "response", id, command: "list_sessions", success: true, data }) + "\\n");
      process.stdin.destroy();
    });`;
  const client = new PiServerClient({ transport: stdioTransport({ command: [process.execPath, "-e", script] }), reconnect: false });
  const data = (await client.call("list_sessions", {})) as unknown as { text: string };
  assert.equal(data.text.length, 1 << 20);
  await assert.rejects(client.call("list_sessions", {}), /the server ended \(0\)/);
});
