/** The canonical client against the real binary: programs, terminals, machines, slow and sleeping clients. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test, type TestContext } from "node:test";

import { CommandError, type Quarterdeck, type SessionModel } from "../src/index.ts";
import { demo, settled, world, type TestHub } from "./hub.ts";
import { BINARY } from "./process.ts";
import { eventually } from "./server.ts";

const LIMIT = { timeout: 240_000 };

async function run(client: Quarterdeck, cmd: string): Promise<SessionModel> {
  const { session_id } = await client.call("session.create", { config: { harness: "pty", run: { cmd, cols: 80, rows: 24 } } });
  return client.session(session_id);
}

/** Everything a run has written from its beginning, as one who looks at it sees it. */
function screen(session: SessionModel): { text: () => string; seqs: number[] } {
  let text = "";
  const seqs: number[] = [];
  session.onOutput((piece, seq) => {
    text += piece;
    seqs.push(seq);
  });
  return { text: () => text, seqs };
}

test("a run's output is exact over cuts, and a late look begins with the screen", LIMIT, async (context) => {
  const { client, another, proxy } = await world(context);
  const session = await run(client, "read go; for i in $(seq 1 4000); do echo line-$i-é😀; done; read stop");
  const reader = another();
  const other = reader.session(session.sessionId);
  await eventually("both look", () => session.loaded && other.loaded && session.terminal !== undefined);
  const shown = screen(session);
  await client.call("run.stdin", { text: "go\r" }, { sessionId: session.sessionId });
  for (let cut = 0; cut < 5; cut += 1) {
    await eventually("the client is back", () => client.connection.state === "live");
    await new Promise((resume) => setTimeout(resume, Math.random() * 40));
    proxy.cut();
  }
  const late = screen(other);
  await eventually("everything came", () => shown.text().includes("line-4000-é😀") && late.text().includes("line-4000-é😀"));
  const lines = [...shown.text().matchAll(/line-(\d+)-é😀/g)].map((match) => Number(match[1]));
  assert.deepEqual(lines, Array.from({ length: 4_000 }, (_, at) => at + 1), "each line once and in order");
  assert.deepEqual(shown.seqs, [...shown.seqs].sort((one, two) => one - two));
  assert.equal(new Set(shown.seqs).size, shown.seqs.length);
  assert.equal(late.text(), shown.text(), "who looks later gets what came since the same screen");
  assert.equal(session.state?.status, "working");
  await client.call("run.resize", { cols: 100, rows: 30 }, { sessionId: session.sessionId });
  await eventually("the size is told", () => session.state?.run?.cols === 100);
  const newest = another().session(session.sessionId);
  await eventually("a new look has the screen", () => newest.terminal?.screen.includes("line-4000-é😀") ?? false);
  await client.call("run.input", { input_id: "i1", text: "stop\r" }, { sessionId: session.sessionId });
  await eventually("it ended", () => session.state?.status === "closed");
  assert.equal(session.state?.run?.exit_code, 0);
  assert.ok(session.notices.some(({ kind, text }) => kind === "lifecycle" && text.includes("code 0")));
});

test("a terminal is opened, typed into, resized, joined again after a cut, and closed", LIMIT, async (context) => {
  const { client, proxy } = await world(context);
  const terminal = client.terminal({ cols: 80, rows: 24 });
  const decoder = new TextDecoder();
  let text = "";
  let resets = 0;
  terminal.onData((bytes, isReset) => {
    if (isReset) resets += 1;
    text = (isReset ? "" : text) + decoder.decode(bytes, { stream: true });
  });
  await eventually("it is open", () => terminal.state === "open");
  assert.equal(terminal.joined, false);
  terminal.input("PS1='> '; echo $((40+2))-first\n");
  await eventually("it answers", () => text.includes("42-first"));
  terminal.resize(101, 31);
  await eventually("it has the size", () => terminal.cols === 101 && terminal.rows === 31);
  proxy.cut();
  await eventually("the loss is seen", () => terminal.state === "reconnecting");
  terminal.input("echo never\n");
  terminal.resize(102, 32);
  await eventually("it is open again", () => terminal.state === "open" && resets === 2);
  assert.equal(terminal.joined, true);
  assert.ok(text.includes("42-first"), "the screen as it was");
  await eventually("the size is told", () => terminal.cols === 102);
  terminal.input("stty size; echo $((40+3))-second\n");
  await eventually("it answers", () => text.includes("43-second"));
  assert.match(text, /32 102/);
  assert.ok(!text.includes("never"));
  const { terminalId } = terminal;
  const joined = client.terminal({ ...(terminalId === undefined ? {} : { terminalId }), cols: 102, rows: 32 });
  await eventually("another is in", () => joined.state === "open" && joined.joined);
  terminal.leave();
  assert.equal(terminal.state, "closed");
  joined.input("exit 7\n");
  await eventually("it has ended", () => joined.state === "exited");
  assert.deepEqual(joined.exit, { exitCode: 7 });
  const wrong = client.terminal({ sessionId: "nobody", cols: 80, rows: 24 });
  await eventually("it failed", () => wrong.state === "failed");
  assert.ok((wrong.error ?? "") !== "");
});

test("a client that reads too slowly is told how things stand, and ends equal", LIMIT, async (context) => {
  const { client, another, proxy } = await world(context);
  const session = await demo(client);
  session.send("/text");
  await settled(client, session, 2);
  const release = proxy.hold();
  const other = another();
  const driver = other.session(session.sessionId);
  await eventually("the other is there", () => driver.loaded);
  // More than the sockets on the way hold: what an agent writes at once is one event, so a turn is small.
  for (let turn = 1; turn <= 4; turn++) {
    driver.send("/long 100000");
    await settled(other, driver, 2 + 2 * turn);
  }
  driver.send("/tools");
  await settled(other, driver, 15);
  const kinds = new Set<string>();
  session.onChange(({ kind }) => kinds.add(kind));
  client.onConnection(({ state }) => kinds.add(state));
  release();
  await settled(client, session, 15);
  assert.ok(kinds.has("all"), "it was resynced");
  assert.ok(!kinds.has("reconnecting"), "on the same connection");
  assert.deepEqual(session.messages, driver.messages);
});

test("a client that slept finds a dead connection at once, and ends equal", LIMIT, async (context) => {
  const { hub, client, another, proxy } = await world(context, { silenceMs: 60_000 });
  const session = await demo(client);
  const url = `${proxy.address}/ws/mux`;
  const child = spawn(process.execPath, [join(import.meta.dirname, "sleeper.ts"), url, hub.token, session.sessionId], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  context.after(() => child.kill("SIGKILL"));
  let last: { count: number; state: string; partial: boolean } | undefined;
  createInterface({ input: child.stdout }).on("line", (line) => {
    last = JSON.parse(line) as typeof last;
  });
  await eventually("the sleeper looks", () => last !== undefined);
  session.send("/long 4000");
  await eventually("it streams there", () => last?.partial === true);
  child.kill("SIGSTOP");
  // While it sleeps the network forgets its connection, without a word.
  proxy.stall();
  const driver = another().session(session.sessionId);
  await eventually("another is there", () => driver.loaded);
  driver.send("/text");
  await eventually("the turns are over", () => driver.messages.length === 4 && driver.state?.status === "idle");
  // The sleep itself: longer than the client takes for one, and no event marks its end.
  await new Promise((resume) => setTimeout(resume, 2_500));
  const before = last;
  child.kill("SIGCONT");
  await eventually("it is equal", () => last?.count === 4 && !last.partial && last.state === "live");
  assert.ok((before?.count ?? 0) < 4);
});

/** Another machine, joined to the hub. */
class Machine {
  readonly #directory = mkdtempSync(join(tmpdir(), "qd-machine-"));
  #child: ReturnType<typeof spawn> | undefined;

  #environment(): Record<string, string> {
    const PATH = process.env["PATH"] ?? "";
    return { PATH, HOME: this.#directory, XDG_RUNTIME_DIR: this.#directory, QD_DATA_DIR: join(this.#directory, "data"), QD_PI_COMMAND: "/no/pi" };
  }

  async join(hub: TestHub, name: string): Promise<void> {
    const base = `http://127.0.0.1:${hub.port}`;
    const headers = { authorization: `Bearer ${hub.token}` };
    const invite = (await (await fetch(`${base}/api/runners/invites`, { method: "POST", headers })).json()) as { code: string };
    const words = ["runner", "join", base, "--code", invite.code, "--name", name, "--no-start"];
    const [code] = (await once(spawn(BINARY, words, { env: this.#environment(), stdio: "ignore" }), "exit")) as [number];
    assert.equal(code, 0);
  }

  async start(): Promise<void> {
    const child = spawn(BINARY, ["runner", "start", "--ready-json"], { env: this.#environment(), stdio: ["ignore", "pipe", "ignore"] });
    this.#child = child;
    await once(createInterface({ input: child.stdout }), "line");
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child) return;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
  }

  async end(): Promise<void> {
    await this.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

async function machine(context: TestContext, hub: TestHub, name: string): Promise<Machine> {
  const it = new Machine();
  context.after(() => it.end());
  await it.join(hub, name);
  await it.start();
  return it;
}

test("the fleet follows sessions and machines, and a prompt waits for a machine that is away", LIMIT, async (context) => {
  const { hub, client, another } = await world(context);
  const { fleet } = client;
  await eventually("the fleet is loaded", () => fleet.loaded && fleet.runners.size === 1);
  let changes = 0;
  fleet.onChange(() => (changes += 1));
  const other = await machine(context, hub, "shed");
  await eventually("the machine is seen", () => fleet.runners.get("shed")?.status === "online");
  const config = { config: { harness: "demo" } };
  const { session_id } = await another().call("session.create", config, { runnerId: "shed" });
  await eventually("the session is seen", () => fleet.sessions.get(session_id)?.state === "idle");
  assert.equal(fleet.sessions.get(session_id)?.runner_id, "shed");
  const session = client.session(session_id);
  await eventually("it is loaded", () => session.loaded);
  await client.call("set_session_name", { name: "roses" }, { sessionId: session_id });
  await eventually("the name is seen", () => fleet.sessions.get(session_id)?.title === "roses");
  session.send("/question");
  await eventually("it needs somebody", () => fleet.sessions.get(session_id)?.pending_input_count === 1);
  await session.answer(session.questions[0]?.request_id ?? "", { value: "red" });
  await settled(client, session, 3);
  assert.equal(session.runnerAway, false);
  await other.kill();
  await eventually("it is away", () => fleet.runners.get("shed")?.status === "offline" && session.runnerAway);
  await eventually("its session is offline", () => fleet.sessions.get(session_id)?.state === "offline");
  await assert.rejects(client.call("prompt", { message: "now" }, { sessionId: session_id }), CommandError);
  session.send("/text");
  assert.equal(session.pending[0]?.status, "waiting");
  await other.start();
  await eventually("it is back", () => !session.runnerAway);
  await settled(client, session, 5);
  await client.call("session.close", {}, { sessionId: session_id });
  await eventually("it is closed", () => fleet.sessions.get(session_id)?.state === "closed" && session.state?.status === "closed");
  await client.call("session.delete", {}, { sessionId: session_id });
  await eventually("it is gone", () => !fleet.sessions.has(session_id) && session.isGone);
  assert.ok(changes > 5);
});
