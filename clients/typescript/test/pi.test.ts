/** The client with the real pi: what is followed ends equal to `get_messages`, whatever happens to the conversation. */
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";

import { PiServerClient, type SessionFollower } from "../src/pi-server.ts";
import { ScriptedModel } from "./pi.ts";
import { Proxy, TestServer, eventually } from "./server.ts";

test("a followed session of pi ends equal to the server's", { timeout: 60_000 }, async (context) => {
  const model = new ScriptedModel();
  context.after(() => model.end());
  const server = new TestServer(await model.start());
  context.after(() => server.end());
  await server.start();
  const client = new PiServerClient({ url: `ws://127.0.0.1:${server.port}`, token: server.token });
  context.after(() => client.close());
  const cwd = join(server.directory, "project");
  mkdirSync(cwd);
  const { sessionId } = await client.call("create_session", { harness: "pi", cwd });
  const follower = await client.follow(sessionId);
  let settled = 0;
  const written: string[] = [];
  follower.onUpdate((update) => {
    if (update.type !== "event") return;
    if (update.event.type === "agent_settled") settled += 1;
    if (update.event.type === "message_update") written.push(JSON.stringify(follower.streaming?.content));
  });
  const turn = async (message: string) => {
    const before = settled;
    await client.call("prompt", { sessionId, message });
    await eventually(`the turn "${message}"`, () => settled > before);
  };
  const isEqual = (what: string) => equal(client, follower, what);

  model.script.push({ tool: "bash", arguments: { command: "echo from the tool" } }, { text: "The tool has run." });
  await turn("use a tool");
  await isEqual("a turn with a tool");
  assert.ok(follower.messages.some((message) => message.role === "toolResult"));
  assert.ok(written.some((content) => content.includes("The tool ") && !content.includes("has run.")), "it was seen growing");
  assert.equal(follower.streaming, null);

  model.script.push({ status: 500 }, { text: "The second attempt went well." });
  await turn("fail once");
  await isEqual("a retry");

  await client.call("bash", { sessionId, command: "echo by hand" });
  await isEqual("bash");
  assert.ok(JSON.stringify(follower.messages).includes("by hand"));

  for (let number = 0; number < 3; number += 1) await turn(`a long question ${"with many words ".repeat(100)}`);
  await client.call("compact", { sessionId });
  await isEqual("compaction");
  assert.ok(follower.messages.some((message) => message.role === "compactionSummary"), JSON.stringify(follower.messages));

  await turn("after the compaction");
  await isEqual("a turn after the compaction");
  const { messages: places } = await client.call("get_fork_messages", { sessionId });
  await client.call("fork", { sessionId, entryId: places.at(-1)?.entryId ?? "" });
  await isEqual("fork");
  assert.ok(!JSON.stringify(follower.messages).includes("after the compaction"));

  await client.call("new_session", { sessionId });
  await isEqual("new_session");
  await turn("the last one");
  await isEqual("a turn in the new conversation");
  assert.equal(follower.messages.filter((message) => message.role === "user").length, 1);
});

test("a followed session of pi survives cuts in the middle of answers", { timeout: 60_000 }, async (context) => {
  const model = new ScriptedModel();
  context.after(() => model.end());
  const server = new TestServer(await model.start());
  context.after(() => server.end());
  await server.start();
  const proxy = new Proxy(() => server.port);
  context.after(() => proxy.end());
  const client = new PiServerClient({ url: await proxy.listen(), token: server.token });
  context.after(() => client.close());
  const { sessionId } = await client.call("create_session", { harness: "pi", cwd: server.directory });
  const follower = await client.follow(sessionId);
  follower.onUpdate((update) => {
    if (update.type === "event" && update.event.type === "message_update" && Math.random() < 0.02) proxy.cut();
  });
  for (let round = 0; round < 5; round += 1) {
    model.script.push({ tool: "bash", arguments: { command: `echo ${round}` } }, { text: `round ${round} `.repeat(60) });
    await client.call("prompt", { sessionId, message: `round ${round}` });
  }
  await eventually("everything was said", async () => {
    const state = await client.call("get_state", { sessionId });
    return !state.isStreaming && model.requests >= 10;
  });
  await equal(client, follower, "cuts");
  assert.equal(follower.streaming, null);
  assert.equal(follower.messages.filter((message) => message.role === "user").length, 5);
  assert.ok(proxy.connections > 1, "nothing was cut");
});

async function equal(client: PiServerClient, follower: SessionFollower, what: string): Promise<void> {
  const { sessionId } = follower;
  let messages: unknown[] = [];
  const isEqual = async () => {
    ({ messages } = await client.call("get_messages", { sessionId }));
    return !follower.isLost && isDeepStrictEqual(messages, follower.messages);
  };
  await eventually(what, isEqual).catch(() => {});
  assert.deepEqual(follower.messages, messages, what);
}
