/** The client against the real binary: what is sent runs once, what is followed ends equal. */
import assert from "node:assert/strict";
import { test } from "node:test";

import { CommandError, PiServerClient } from "../src/pi-server.ts";
import { stdioTransport } from "../src/stdio.ts";
import { BINARY } from "./process.ts";
import { Proxy, TestServer, eventually } from "./server.ts";

test("commands are typed, versions are kept and failures are thrown", { timeout: 60_000 }, async (context) => {
  const server = new TestServer();
  context.after(() => server.end());
  await server.start();
  const client = new PiServerClient({ url: `ws://127.0.0.1:${server.port}`, token: server.token });
  context.after(() => client.close());
  const ready = await client.connect();
  assert.equal(ready.protocolVersion, "1.0.0");
  const { sessionId } = await client.call("create_session", { harness: "demo" });
  await client.call("set_session_name", { sessionId, name: "typed" });
  assert.equal(client.versions.get(sessionId), 1);
  const state = await client.call("get_state", { sessionId });
  assert.equal(state.sessionName, "typed");
  await assert.rejects(client.call("get_state", { sessionId: "nobody" }), (error) => {
    assert.ok(error instanceof CommandError);
    assert.equal(error.message, "Session nobody not found");
    return true;
  });
  client.close();
  await assert.rejects(client.call("list_sessions", {}), /closed/);
});

test("a mutation runs once however often the network is cut", { timeout: 60_000 }, async (context) => {
  const server = new TestServer();
  context.after(() => server.end());
  await server.start();
  const proxy = new Proxy(() => server.port);
  context.after(() => proxy.end());
  const client = new PiServerClient({ url: await proxy.listen(), token: server.token });
  context.after(() => client.close());
  const { sessionId } = await client.call("create_session", { harness: "demo" });
  const count = 300;
  let done = 0;
  const chaos = (async () => {
    while (done < count) {
      await new Promise((resume) => setTimeout(resume, 5 + Math.random() * 20));
      proxy.cut();
    }
  })();
  const versions: number[] = [];
  for (let first = 0; first < count; first += 10) {
    const batch = Array.from({ length: 10 }, (_, number) =>
      client.send("set_session_name", { sessionId, name: `name ${first + number}` }),
    );
    for (const answer of await Promise.all(batch)) versions.push(answer.sessionVersion ?? -1);
    done += 10;
  }
  await chaos;
  assert.ok(proxy.connections > 3, `only ${proxy.connections} connections: nothing was cut`);
  assert.deepEqual(versions, Array.from({ length: count }, (_, number) => number + 1));
  const state = await client.send("get_state", { sessionId });
  assert.equal(state.sessionVersion, count);
  assert.equal(state.data.sessionName, `name ${count - 1}`);
  client.close();
});

test("a followed session ends equal to the server's after cuts and a kill", { timeout: 60_000 }, async (context) => {
  const server = new TestServer();
  context.after(() => server.end());
  await server.start();
  const proxy = new Proxy(() => server.port);
  context.after(() => proxy.end());
  const url = await proxy.listen();
  const client = new PiServerClient({ url, token: server.token });
  context.after(() => client.close());
  const { sessionId } = await client.call("create_session", { harness: "demo" });
  const follower = await client.follow(sessionId);
  let resyncs = 0;
  let settled = 0;
  follower.onUpdate((update) => {
    if (update.type === "resync") resyncs += 1;
    if (update.type === "event" && update.event.type === "agent_settled") settled += 1;
  });
  await client.call("prompt", { sessionId, message: "hello" });
  await eventually("the first turn", () => settled === 1);
  for (let round = 0; round < 5; round += 1) {
    const prompted = client.call("prompt", { sessionId, message: `round ${round}` });
    await new Promise((resume) => setTimeout(resume, 30 * round));
    proxy.cut();
    await prompted;
  }
  await server.kill();
  await server.start();
  await client.call("prompt", { sessionId, message: "after the kill" });
  await eventually("the follower has caught up", async () => {
    const state = await client.call("get_state", { sessionId });
    if (state.isStreaming || follower.isLost) return false;
    const { messages } = await client.call("get_messages", { sessionId });
    return JSON.stringify(messages) === JSON.stringify(follower.messages);
  });
  assert.ok(resyncs > 0);
  assert.equal(follower.streaming, null);
  const asked = follower.messages.filter((message) => message.role === "user").map((message) => JSON.stringify(message.content));
  for (let round = 0; round < 5; round += 1) {
    assert.equal(asked.filter((text) => text.includes(`round ${round}`)).length, 1, `round ${round} ran once`);
  }
  assert.equal(new Set(asked).size, asked.length, "nothing is doubled");
  client.close();
});

test("a wrong token is told at once", { timeout: 60_000 }, async (context) => {
  const server = new TestServer();
  context.after(() => server.end());
  await server.start();
  const reasons: (string | undefined)[] = [];
  const client = new PiServerClient({
    url: `ws://127.0.0.1:${server.port}`,
    token: "wrong",
    onConnection: (_, reason) => reasons.push(reason),
  });
  context.after(() => client.close());
  await assert.rejects(client.connect(), /check that .* the token is right/);
  assert.equal(reasons.length, 1);
});

test("a server that takes less than this client thinks says so", { timeout: 60_000 }, async (context) => {
  const server = new TestServer({ QD_PI_MESSAGE_BYTES_MAX: "2000" });
  context.after(() => server.end());
  await server.start();
  const client = new PiServerClient({ url: `ws://127.0.0.1:${server.port}`, token: server.token });
  context.after(() => client.close());
  const { sessionId } = await client.call("create_session", { harness: "demo" });
  const message = "x".repeat(5_000);
  await assert.rejects(client.call("prompt", { sessionId, message }), /the server takes 2000/);
  await client.call("get_state", { sessionId });
});

test("a rate limit only slows a client down", { timeout: 60_000 }, async (context) => {
  const server = new TestServer({ QD_PI_UI_RATE_PER_MINUTE: "0", QD_PI_PENDING_MAX: "4" });
  context.after(() => server.end());
  await server.start();
  const client = new PiServerClient({ url: `ws://127.0.0.1:${server.port}`, token: server.token });
  context.after(() => client.close());
  const { sessionId } = await client.call("create_session", { harness: "demo" });
  const names = Array.from({ length: 40 }, (_, number) => client.send("set_session_name", { sessionId, name: `n${number}` }));
  const versions = (await Promise.all(names)).map((answer) => answer.sessionVersion);
  assert.equal(Math.max(...versions.map((version) => version ?? 0)), 40);
  assert.equal(new Set(versions).size, 40);
  client.close();
});

test("a server of one's own over stdio", { timeout: 60_000 }, async (context) => {
  const server = new TestServer();
  context.after(() => server.end());
  const client = new PiServerClient({
    transport: stdioTransport({ command: [BINARY, "pi-server", "--port", "0"], env: server.environment, onStderr: () => {} }),
    reconnect: false,
  });
  context.after(() => client.close());
  const ready = await client.connect();
  assert.deepEqual(ready.transports.includes("stdio"), true);
  const { sessionId } = await client.call("create_session", { harness: "demo" });
  const follower = await client.follow(sessionId);
  const settled = new Promise<void>((resume) => {
    follower.onUpdate((update) => {
      if (update.type === "event" && update.event.type === "agent_settled") resume();
    });
  });
  await client.call("prompt", { sessionId, message: "hello" });
  await settled;
  assert.ok(follower.messages.length >= 2);
  client.close();
});
