/** The canonical client against the real binary: what is followed ends equal, what is sent runs once. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { CommandError, Quarterdeck } from "../src/index.ts";
import { TestHub, demo, settled, stored, texts, world } from "./hub.ts";
import { eventually } from "./server.ts";

const LIMIT = { timeout: 240_000 };

test("a turn is folded: the message grows, tools run and end, the conversation is the hub's", LIMIT, async (context) => {
  const { client } = await world(context);
  const session = await demo(client);
  assert.equal(client.connection.state, "live");
  const kinds: string[] = [];
  const seen = new Set<string>();
  let didRun = false;
  session.onChange(({ kind }) => {
    kinds.push(kind);
    seen.add(session.partial?.message?.blocks[0]?.text ?? "");
    didRun ||= session.partial?.tools.some((tool) => tool.name === "bash" && tool.status === "running") ?? false;
  });
  const clientId = session.send("/tools");
  assert.deepEqual(session.pending.map(({ clientId: id, status, text }) => [id, status, text]), [[clientId, "waiting", "/tools"]]);
  await settled(client, session, 5);
  assert.equal(session.messages[0]?.client_id, clientId);
  assert.ok(kinds.includes("delta") && kinds.includes("messages") && kinds.includes("state"), kinds.join());
  const answers = texts(session.messages, "assistant");
  assert.ok(seen.size > 1, "the answers grew");
  for (const text of seen) assert.ok(answers.some((answer) => answer.startsWith(text)), text);
  assert.ok(didRun);
  const tools = [...session.tools.values()].map(({ name, status, input, progress }) => ({ name, status, input, progress }));
  assert.deepEqual(tools, [
    { name: "read", status: "done", input: { path: "README.md" }, progress: undefined },
    { name: "bash", status: "done", input: { command: "echo hello" }, progress: undefined },
  ]);
  for (const tool of session.tools.values()) assert.ok((tool.endedAt ?? 0) >= tool.startedAt);
});

test("cuts in the middle of streams lose nothing and double nothing", LIMIT, async (context) => {
  const { client, proxy } = await world(context);
  const session = await demo(client);
  for (let round = 0; round < 6; round += 1) {
    session.send(round % 2 === 0 ? `/long ${3_000 + round}` : "/thinking");
    await eventually("something streams", () => session.partial !== undefined);
    for (let cut = 0; cut < 3; cut += 1) {
      const before = proxy.connections;
      await new Promise((resume) => setTimeout(resume, Math.random() * 20));
      proxy.cut();
      await eventually("the client is back", () => proxy.connections > before && client.connection.state === "live");
    }
  }
  await settled(client, session, 12);
  assert.ok(proxy.connections > 12, `${proxy.connections} connections`);
  const ids = session.messages.map((message) => message.id);
  assert.equal(new Set(ids).size, ids.length);
});

test("a hub that is killed in the middle comes back on the same place, and the model ends equal", LIMIT, async (context) => {
  const { client, hub } = await world(context);
  const session = await demo(client);
  session.send("/text");
  await settled(client, session, 2);
  session.send("/long 200000");
  await eventually("the answer streams", () => session.partial?.message?.blocks[0] !== undefined);
  await hub.kill();
  await eventually("the loss is seen", () => client.connection.state === "reconnecting");
  await hub.start();
  await eventually("the client is back", () => client.connection.state === "live");
  await eventually("nothing is left being written", () => session.state?.status !== "working" && session.partial === undefined);
  const waiting = session.pending.map(({ status }) => status);
  for (const { clientId } of session.pending) session.discard(clientId);
  session.send("after the kill");
  await settled(client, session);
  const asked = texts(session.messages, "user");
  assert.equal(new Set(asked).size, asked.length, asked.join());
  assert.ok(asked.includes("after the kill"), `${asked.join()} (${waiting.join()})`);
});

test("sends while there is no connection wait, and go once and in order", LIMIT, async (context) => {
  const { client, proxy } = await world(context);
  const session = await demo(client);
  proxy.isDown = true;
  proxy.cut();
  await eventually("the loss is seen", () => client.connection.state === "reconnecting");
  const counts: number[] = [];
  client.onPendingCalls((count) => counts.push(count));
  const words = ["one", "two", "three", "four"];
  for (const word of words) session.send(word);
  assert.deepEqual(session.pending.map(({ status }) => status), ["waiting", "waiting", "waiting", "waiting"]);
  assert.equal(client.pendingCalls, 4);
  proxy.isDown = false;
  // Cuts while they go: each answer may be lost.
  for (let cut = 0; cut < 4; cut += 1) {
    await new Promise((resume) => setTimeout(resume, 40));
    proxy.cut();
  }
  await settled(client, session, 8);
  assert.deepEqual(texts(session.messages, "user"), words);
  assert.equal(client.pendingCalls, 0);
  assert.deepEqual([Math.max(...counts), counts.at(-1)], [4, 0]);
});

test("two clients agree after every step, and a question answered by one is gone for both", LIMIT, async (context) => {
  const { client, another } = await world(context);
  const one = await demo(client);
  const otherClient = another();
  const other = otherClient.session(one.sessionId);
  const agree = async (count: number) => {
    await settled(client, one, count);
    await settled(otherClient, other, count);
    assert.deepEqual(other.messages, one.messages);
    // No event tells the version: each has the one of when it attached.
    const strip = ({ process: _, session_version: _version, ...state }: NonNullable<typeof one.state>) => state;
    assert.deepEqual(strip(other.state ?? assert.fail()), strip(one.state ?? assert.fail()));
    assert.deepEqual([...other.tools.keys()], [...one.tools.keys()]);
  };
  one.send("/text");
  await agree(2);
  other.send("/tools");
  await agree(7);
  one.send("/question");
  await eventually("both are asked", () => one.questions.length === 1 && other.questions.length === 1);
  assert.deepEqual(one.questions, other.questions);
  const request = one.questions[0] ?? assert.fail();
  await other.answer(request.request_id, { value: "green" });
  await eventually("neither is asked", () => one.questions.length === 0 && other.questions.length === 0);
  await assert.rejects(one.answer(request.request_id, { value: "red" }), CommandError);
  await agree(10);
  await client.call("set_session_name", { name: "named" }, { sessionId: one.sessionId });
  await eventually("both know the name", () => one.state?.title === "named" && other.state?.title === "named");
});

test("a wrong token is refused, and nothing is tried again", LIMIT, async (context) => {
  const hub = new TestHub();
  context.after(() => hub.end());
  await hub.start();
  const client = new Quarterdeck({ url: hub.url, token: "wrong" });
  context.after(() => client.close());
  client.connect();
  await eventually("the refusal", () => client.connection.state === "refused");
  assert.match(client.connection.error ?? "", /signed in/);
});

test("old messages come page by page, and a window around one leaves a gap that can be filled", LIMIT, async (context) => {
  const { client, another } = await world(context);
  const maker = await demo(client);
  for (let turn = 0; turn < 130; turn += 1) maker.send("/long 1", { kind: "follow_up" });
  await settled(client, maker, 260);
  const { sessionId } = maker;
  const all = await stored(client, sessionId);
  const reader = another();
  const session = reader.session(sessionId);
  await eventually("the session is loaded", () => session.loaded);
  assert.equal(session.messages.length, 200);
  assert.equal(session.messages[0]?.idx, 60);
  assert.ok(session.hasOlder);
  await Promise.all([session.loadOlder(), session.loadOlder()]);
  assert.ok(!session.hasOlder);
  assert.deepEqual(session.messages, all);
});
