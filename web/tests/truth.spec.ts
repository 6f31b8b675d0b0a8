/** What the page shows is what the hub has, whatever happens to the network, the hub or the laptop. */
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";

import type { ScriptedModel } from "../../clients/typescript/test/pi.ts";
import { BINARY } from "./support/hub.ts";
import { test as piTest } from "./support/pi.ts";
import { descendants, signalAll } from "./support/processes.ts";
import { Runner } from "./support/runner.ts";
import { composer } from "./support/talk.ts";
import { expect, signIn, test, watch, type Hub, type Page } from "./support/test.ts";

piTest.describe("in the middle of an answer of pi", () => {
  piTest("the network is cut and comes back", async ({ page, hub, network, model }) => {
    const problems = watch(page);
    const session = await openPi(page, hub, network.url);
    const enough = await talking(page, model);
    network.cut();
    await expect(page.getByTestId("connection")).toContainText("Reconnecting");
    network.restore();
    await streaming(page);
    enough.abort();
    await endsEqual(page, hub, session, 2);
    expect(problems).toEqual([]);
  });

  piTest("the connection breaks again and again", async ({ page, hub, network, model }) => {
    const session = await openPi(page, hub, network.url);
    const enough = await talking(page, model);
    for (let round = 0; round < 5; round += 1) {
      network.interrupt();
      await streaming(page);
    }
    enough.abort();
    await endsEqual(page, hub, session, 2);
  });

  piTest("the network goes silent without a word", async ({ page, hub, network, model }) => {
    piTest.setTimeout(120_000);
    const session = await openPi(page, hub, network.url);
    const enough = await talking(page, model);
    network.stall();
    await expect.poll(async () => (await hub.command<{ status: string }>("get_state", { session_id: session })).status).toBe("working");
    enough.abort();
    await endsEqual(page, hub, session, 2, 90_000);
  });

  piTest("the hub is killed and started again", async ({ page, hub, model }) => {
    const session = await openPi(page, hub, hub.url);
    await say(page, "hello");
    await endsEqual(page, hub, session, 2);
    const enough = await talking(page, model);
    await hub.kill();
    await expect(page.getByTestId("connection")).toBeVisible();
    enough.abort();
    await hub.start();
    await endsEqual(page, hub, session);
    // What became of it is said once, and only what is true: nothing goes on before somebody says so.
    const note = page.getByTestId("notice").filter({ hasText: "Quarterdeck stopped while the agent was working" });
    await expect(note).toContainText("Send a prompt to go on.");
    await expect(note).not.toContainText("by itself");
    await say(page, "and again");
    await expect(page.getByTestId("message").filter({ hasText: "and again" })).toHaveCount(1);
    await expect(page.getByText(/Answer number \d+ of the scripted model/).last()).toBeVisible();
    await endsEqual(page, hub, session);
  });

  piTest("the laptop's lid is closed: the page is frozen", async ({ page, hub, network, model }) => {
    const session = await openPi(page, hub, network.url);
    const enough = await talking(page, model);
    const browser = await page.context().newCDPSession(page);
    await browser.send("Page.setWebLifecycleState", { state: "frozen" });
    // While it sleeps the connection dies, as it does on a real one, and the agent goes on.
    network.interrupt();
    enough.abort();
    await expect.poll(async () => (await hub.messages(session)).at(-1)?.role).toBe("assistant");
    await browser.send("Page.setWebLifecycleState", { state: "active" });
    await endsEqual(page, hub, session, 2);
  });

  piTest("the page is loaded anew", async ({ page, hub, model }) => {
    const session = await openPi(page, hub, hub.url);
    const enough = await talking(page, model);
    await page.reload();
    await streaming(page);
    enough.abort();
    await endsEqual(page, hub, session, 2);
  });

});

test("a flood is cut, and nothing of it is lost or doubled", async ({ page, hub, network }) => {
  const session = await open(page, hub, network.url);
  await say(page, "/long 20000");
  await streaming(page);
  network.interrupt();
  await expect.poll(async () => (await hub.messages(session)).length, { timeout: 30_000 }).toBe(2);
  const text = (await hub.messages(session))[1]?.parts[0]?.text?.trim() ?? "";
  const answer = page.locator('[data-testid="message"][data-role="assistant"]');
  await expect(answer).toHaveCount(1);
  await expect.poll(async () => (await answer.textContent())?.includes(text), { timeout: 30_000 }).toBe(true);
  await expect(page.getByRole("progressbar")).toHaveCount(0);
});

test("what is sent while offline waits in sight and goes once, in order @both", async ({ page, hub, network }) => {
  const session = await open(page, hub, network.url);
  network.cut();
  await expect(page.getByTestId("connection")).toBeVisible();
  await say(page, "first of the dark");
  await say(page, "second of the dark");
  await expect(page.getByTestId("pending")).toHaveCount(2);
  await expect(page.getByTestId("pending").first()).toContainText("Waiting for the connection");
  await expect(page.getByTestId("connection")).toContainText("2 commands are queued");
  network.restore();
  await endsEqual(page, hub, session);
  await expect.poll(async () => saidByPeople(hub, session)).toEqual(["first of the dark", "second of the dark"]);
  await endsEqual(page, hub, session, 4);
});

test("what waits survives a reload of the page", async ({ page, hub, network }) => {
  const session = await open(page, hub, network.url);
  network.cut();
  await expect(page.getByTestId("connection")).toBeVisible();
  await say(page, "said before the reload");
  await expect(page.getByTestId("pending")).toHaveCount(1);
  network.restore();
  await page.reload();
  await expect.poll(async () => saidByPeople(hub, session)).toEqual(["said before the reload"]);
  await endsEqual(page, hub, session, 2);
});

piTest("nobody knows whether it arrived: the person is asked, and decides", async ({ page, hub }) => {
  const session = await openPi(page, hub, hub.url);
  await say(page, "hello");
  await endsEqual(page, hub, session, 2);
  for (const [text, decision] of [
    ["lost on the way", "Send again"],
    ["better not", "Discard"],
  ] as const) {
    // An agent that takes nothing any more, then the end of the hub: what was given to it may be done or not.
    const agent = descendants(hub.pid);
    expect(agent).not.toEqual([]);
    signalAll(agent, "SIGSTOP");
    await say(page, text);
    await expect(page.getByTestId("pending")).toContainText("Sending");
    await expect.poll(() => isBegun(hub, text)).toBe(true);
    await hub.kill();
    await hub.start();
    const asked = page.getByTestId("pending");
    await expect(asked).toContainText("It may or may not have arrived.");
    await asked.getByRole("button", { name: decision }).click();
    await expect(asked).toHaveCount(0);
    await endsEqual(page, hub, session, 4);
  }
  expect(await saidByPeople(hub, session)).toEqual(["hello", "lost on the way"]);
});

test("live, reconnecting and offline are said, and the way back is one click", async ({ page, hub, network, context }) => {
  await open(page, hub, network.url);
  const state = page.getByTestId("sidebar-connection");
  const line = page.getByTestId("connection");
  await expect(state).toHaveText("live");
  await expect(line).toHaveCount(0);
  network.cut();
  await expect(line).toContainText("Reconnecting");
  await expect(state).toHaveText("reconnecting");
  await context.setOffline(true);
  await expect(line).toContainText("This device is offline. What you see may be old.");
  await context.setOffline(false);
  network.restore();
  await expect(line).toHaveCount(0);
  await expect(state).toHaveText("live");
});

test("after a long time away one click connects at once", async ({ page, hub, network }) => {
  test.setTimeout(90_000);
  await open(page, hub, network.url);
  const line = page.getByTestId("connection");
  network.cut();
  await expect(line).toContainText("Reconnecting");
  await expect(line.getByRole("button")).toHaveCount(0);
  const button = line.getByRole("button", { name: "Connect now" });
  await expect(button).toBeVisible({ timeout: 30_000 });
  await expect(line).toContainText(/The hub has not answered for \d+ s\.\s+What you see may be old\./);
  const before = network.connections;
  network.restore();
  await button.click();
  await expect(line).toHaveCount(0, { timeout: 3_000 });
  expect(network.connections).toBeGreaterThan(before);
});

test("the machine of a session is away: what is shown is called old, what is sent waits @both", async ({ page, hub }) => {
  const runner = new Runner(hub, "desk");
  try {
    await runner.join();
    const config = { harness: "demo", cwd: runner.project, title: "Far away" };
    const { session_id: session } = await hub.command<{ session_id: string }>("session.create", { runner_id: "desk", config });
    await signIn(page, hub);
    await page.goto(`${hub.url}/s/${session}`);
    await say(page, "/text");
    await endsEqual(page, hub, session, 2);
    await runner.kill();
    await expect(page.getByTestId("status-line")).toContainText("Its runner is offline. What you see may be out of date; messages you send are queued.");
    await say(page, "said to nobody");
    await expect(page.getByTestId("pending")).toContainText("said to nobody");
    await runner.start();
    await expect(page.getByTestId("status-line")).not.toContainText("is offline");
    await endsEqual(page, hub, session, 4);
    expect(await saidByPeople(hub, session)).toEqual(["/text", "said to nobody"]);
  } finally {
    await runner.end();
  }
});

test("two browsers and a terminal with qd attach agree after every step", async ({ page, hub, browser }) => {
  const session = await open(page, hub, hub.url);
  const other = await (await browser.newContext()).newPage();
  await signIn(other, hub);
  await other.goto(`${hub.url}/s/${session}`);
  const terminal = new Attached(hub, session);
  try {
    await terminal.prints("attached to");
    const agree = async (): Promise<void> => {
      await endsEqual(page, hub, session);
      await endsEqual(other, hub, session);
      expect(await shown(other)).toEqual(await shown(page));
      for (const text of await answers(hub, session)) await terminal.printsOnce(text);
    };
    await say(page, "/text");
    await agree();
    await say(other, "/tools");
    await agree();
    terminal.type("/thinking");
    await expect(page.getByTestId("message").filter({ hasText: "/thinking" })).toHaveCount(1);
    await agree();

    await say(other, "/question");
    for (const one of [page, other]) await expect(one.getByTestId("question-card")).toBeVisible();
    await terminal.prints("Which colour should the ship have?");
    terminal.type("2");
    for (const one of [page, other]) await expect(one.getByTestId("question-card")).toHaveCount(0);
    await agree();

    await say(page, "/question");
    for (const one of [page, other]) await expect(one.getByTestId("question-card")).toBeVisible();
    await other.getByTestId("question-card").getByRole("button", { name: "red" }).click();
    for (const one of [page, other]) await expect(one.getByTestId("question-card")).toHaveCount(0);
    await agree();
  } finally {
    terminal.end();
  }
});

/** A person in a terminal who follows a session with `qd attach`. */
class Attached {
  readonly #child;
  #output = "";

  constructor(hub: Hub, session: string) {
    const words = ["-qfc", `stty -echo; exec '${BINARY}' attach ${session}`, "/dev/null"];
    this.#child = spawn("script", words, { env: hub.environment, stdio: ["pipe", "pipe", "inherit"] });
    this.#child.stdout.on("data", (bytes: Buffer) => (this.#output += bytes.toString()));
  }

  type(line: string): void {
    this.#child.stdin.write(`${line}\r`);
  }

  /** What can be read on it, in one line. */
  get text(): string {
    return stripVTControlCharacters(this.#output).replace(/\s+/g, " ");
  }

  async prints(text: string): Promise<void> {
    await expect.poll(() => this.text).toContain(text);
  }

  async printsOnce(text: string): Promise<void> {
    await this.prints(text);
    expect(this.text.split(text)).toHaveLength(2);
  }

  end(): void {
    this.#child.kill();
  }
}

/** The different texts the agent has said. */
async function answers(hub: Hub, session: string): Promise<string[]> {
  const said = (await hub.messages(session)).filter((message) => message.role === "assistant");
  const texts = said.flatMap((message) => message.parts.filter((part) => part.type === "text").map((part) => part.text ?? ""));
  return texts.filter((text) => texts.indexOf(text) === texts.lastIndexOf(text));
}

async function saidByPeople(hub: Hub, session: string): Promise<(string | undefined)[]> {
  const said = (await hub.messages(session)).filter((message) => message.role === "user");
  return said.map((message) => message.parts[0]?.text);
}

/** The runner has noted on its disk that it begins with a prompt: from now on it cannot promise anything. */
function isBegun(hub: Hub, text: string): boolean {
  const journal = join(hub.environment["QD_DATA_DIR"] ?? "", "runner.db-wal");
  return existsSync(journal) && readFileSync(journal).includes(text);
}

async function openPi(page: Page, hub: Hub, at: string): Promise<string> {
  const session = await hub.pi();
  await show(page, hub, at, session);
  return session;
}

/** The agent writes, word after word, until it is told that it is enough. */
async function talking(page: Page, model: ScriptedModel): Promise<AbortController> {
  const enough = new AbortController();
  model.script.push({ wordsUntil: enough.signal });
  await say(page, "Talk until I stop you");
  await streaming(page);
  return enough;
}

/** A new session of the demo agent, on the screen. */
async function open(page: Page, hub: Hub, at: string): Promise<string> {
  const session = await hub.demo();
  await show(page, hub, at, session);
  return session;
}

async function show(page: Page, hub: Hub, at: string, session: string): Promise<void> {
  await signIn(page, hub, at);
  await page.goto(`${at}/s/${session}`);
  await expect(composer(page)).toBeVisible();
}

/** Writes and sends; without a connection the button says that it will wait. */
async function say(page: Page, text: string): Promise<void> {
  await composer(page).fill(text);
  await page.getByRole("button", { name: /^Send( when connected)?$/ }).click();
  await expect(composer(page)).toHaveValue("");
}

/** Waits until an answer is being written, and some of it can be read. */
async function streaming(page: Page): Promise<void> {
  const before = await length(page);
  await expect.poll(() => length(page)).toBeGreaterThan(before);
}

async function length(page: Page): Promise<number> {
  const texts = await page.locator('[data-testid="message"][data-role="assistant"]').allInnerTexts();
  return texts.join("").length;
}

/** The bubbles: which message each is, and what can be read in it. */
async function shown(page: Page): Promise<{ idx: string | null; text: string }[]> {
  return page
    .getByTestId("message")
    .evaluateAll((bubbles) =>
      bubbles.map((bubble) => ({ idx: bubble.getAttribute("data-idx"), text: (bubble.textContent ?? "").replace(/\s+/g, " ") })),
    );
}

/** In the end every message of the hub is there once, and nothing else is: no spinner, no bubble that waits. */
async function endsEqual(page: Page, hub: Hub, session: string, count?: number, timeout = 30_000): Promise<void> {
  await expect(async () => {
    const messages = await hub.messages(session);
    const state = await hub.command<{ status: string }>("get_state", { session_id: session });
    expect(["idle", "dormant"]).toContain(state.status);
    const bubbles = await shown(page);
    const visible = messages.filter((message) => message.role !== "tool");
    // pi's own first message, its instructions, is shown folded and not counted.
    if (count !== undefined) expect(visible.filter((message) => message.role !== "system").length).toBe(count);
    expect(bubbles.map((bubble) => Number(bubble.idx))).toEqual(visible.map((message) => message.idx));
    for (const [place, message] of visible.entries()) {
      const text = message.parts.filter((part) => part.type === "text").map((part) => part.text ?? "").join("");
      const words = text.replace(/[#*_`>\-\[\]()|]/g, " ").split(/\s+/).filter((word) => word !== "");
      for (const word of words.slice(-3)) expect(bubbles[place]?.text).toContain(word);
    }
    expect(await page.getByTestId("pending").count()).toBe(0);
    expect(await page.getByRole("progressbar").count()).toBe(0);
    expect(await page.getByTestId("connection").count()).toBe(0);
  }).toPass({ timeout });
}
