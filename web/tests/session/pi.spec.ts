/** A conversation with the real pi, whose model says what the test wants. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { longSession } from "../support/long.ts";
import { putSearchPrograms } from "../support/searchPrograms.ts";
import { event, expect, openPi, test, type Page } from "../support/pi.ts";
import { answer, choose, composer, idle, say } from "../support/talk.ts";

test("Markdown and thinking stream in @both", async ({ app, hub, model }) => {
  await openPi(app, hub);
  const { happened, happen } = event();
  const text = "# The plan\n\nFirst **this**, then `that`:\n\n- [x] one\n- [ ] two\n\n```ts\nconst ship = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nSee [the docs](https://example.org/) and [the code](src/main.ts).";
  model.script.push({ text, thinking: "Let me weigh the options.", until: happened });
  await say(app, "make a plan");
  await expect(answer(app).getByRole("heading", { name: "The plan" })).toBeVisible();
  await expect(answer(app)).not.toContainText("the docs");
  await expect(app.getByTestId("status-line")).toContainText("Writing");
  happen();
  await idle(app);
  await expect(answer(app).getByRole("strong")).toHaveText("this");
  await expect(answer(app).getByRole("img", { name: "done" })).toHaveCount(1);
  await expect(answer(app).getByRole("group", { name: "Code" })).toHaveText("const ship = 1;");
  await expect(answer(app).getByRole("cell", { name: "2" })).toBeVisible();
  await expect(answer(app).getByRole("link", { name: "the docs" })).toHaveAttribute("href", "https://example.org/");
  await expect(answer(app).getByRole("link", { name: "the code" })).toHaveAttribute("href", /\/files\/src\/main\.ts$/);
  await answer(app).getByRole("button", { name: /^Thought/ }).click();
  await expect(answer(app)).toContainText("Let me weigh the options.");
});

test("a shell command is a card with colours; a failing one says so", async ({ app, hub, model }) => {
  await openPi(app, hub);
  model.script.push(
    { tool: "bash", arguments: { command: "printf '\\033[1;31mred alert\\033[0m calm'" } },
    { tool: "bash", arguments: { command: "echo broken; exit 3" } },
    { text: "Both have run." },
  );
  await say(app, "run them");
  await expect(app.getByText("Both have run.")).toBeVisible();
  const good = app.getByTestId("tool-card").filter({ hasText: "printf" });
  await expect(good).toHaveAttribute("data-status", "done");
  await expect(good.getByRole("group", { name: "Output" })).toHaveText("red alert calm");
  const red = good.getByText("red alert", { exact: true });
  const colour = (element: Element): string => getComputedStyle(element).color;
  expect(await red.evaluate(colour)).not.toBe(await good.getByRole("group", { name: "Output" }).evaluate(colour));
  const bad = app.getByTestId("tool-card").filter({ hasText: "exit 3" });
  await expect(bad).toHaveAttribute("data-status", "error");
  await expect(bad).toContainText("failed");
  await expect(bad.getByRole("group", { name: "Output" })).toContainText("broken");
});

test("files are read with colours, and changed as diffs @both", async ({ app, hub, model }) => {
  writeFileSync(join(hub.project, "ship.ts"), "const sails = 3;\nconst crew = 12;\nexport { sails, crew };\n");
  await openPi(app, hub);
  model.script.push(
    { tool: "read", arguments: { path: "ship.ts" } },
    { tool: "edit", arguments: { path: "ship.ts", edits: [{ oldText: "const crew = 12;", newText: "const crew = 14;" }] } },
    { tool: "write", arguments: { path: "log.md", content: "# Log\nAll well.\n" } },
    { text: "Done with the ship." },
  );
  await say(app, "refit");
  await expect(app.getByText("Done with the ship.")).toBeVisible();
  const cards = app.getByTestId("tool-card");
  const read = cards.filter({ has: app.getByText("read", { exact: true }) });
  await read.getByRole("button").first().click();
  const code = read.getByRole("group", { name: "ship.ts" });
  await expect(code).toContainText("const crew = 12;");
  await expect(code.locator("pre span").filter({ hasText: /^const$/ }).first()).toHaveAttribute("class", /./);
  const edit = cards.filter({ has: app.getByText("edit", { exact: true }) });
  const change = edit.getByRole("group", { name: "Changes to ship.ts" });
  await expect(change).toContainText("removed: const crew = 12;");
  await expect(change).toContainText("added: const crew = 14;");
  const write = cards.filter({ has: app.getByText("write", { exact: true }) });
  await expect(write.getByRole("group", { name: "What is written to log.md" })).toContainText("added: All well.");
  expect(readFileSync(join(hub.project, "ship.ts"), "utf8")).toContain("crew = 14");
});

test.describe("with tools to look for files", () => {
  test.use({
    settings: async ({ model }, use) => {
      const settings = await model.start();
      putSearchPrograms(model.directory);
      await use({ ...settings, QD_PI_COMMAND: `${settings["QD_PI_COMMAND"]} --tools read,bash,ls,grep,find`, PI_OFFLINE: "1" });
    },
  });

  test("what was found is a list whose entries lead to the files", async ({ app, hub, model }) => {
    mkdirSync(join(hub.project, "src"));
    writeFileSync(join(hub.project, "src/rudder.ts"), "left\nright\n");
    await openPi(app, hub);
    model.script.push({ tool: "ls", arguments: { path: "src" } }, { text: "I have looked." });
    await say(app, "look");
    await expect(app.getByText("I have looked.")).toBeVisible();
    const card = app.getByTestId("tool-card").filter({ has: app.getByText("ls", { exact: true }) });
    await card.getByRole("button").first().click();
    await card.getByRole("group", { name: "Found" }).getByRole("link", { name: "rudder.ts" }).click();
    await expect(app).toHaveURL(/\/files\/src\/rudder\.ts$/);
  });

  test("grep shows each line where it is, find each file, and both lead there @both", async ({ app, hub, model }) => {
    mkdirSync(join(hub.project, "src/deep"), { recursive: true });
    writeFileSync(join(hub.project, "src/rudder.ts"), "left\nright\nleft again\n");
    writeFileSync(join(hub.project, "src/deep/keel.ts"), "nothing here\n");
    const session = await openPi(app, hub);
    model.script.push(
      { tool: "grep", arguments: { pattern: "left", path: "src" } },
      { tool: "find", arguments: { pattern: "*.ts", path: "src" } },
      { text: "I have searched." },
    );
    await say(app, "search");
    await expect(app.getByText("I have searched.")).toBeVisible();
    const found = async (name: string) => {
      const card = app.getByTestId("tool-card").filter({ has: app.getByText(name, { exact: true }) });
      await card.getByRole("button").first().click();
      return card.getByRole("group", { name: "Found" });
    };
    const lines = await found("grep");
    await expect(app.getByTestId("tool-card").first()).toContainText("left in src");
    await expect(lines.locator(".hit")).toHaveText([/1\s*left/, /3\s*left again/]);
    const files = await found("find");
    await expect(files.getByRole("link")).toHaveText([/deep\/keel\.ts|rudder\.ts/, /deep\/keel\.ts|rudder\.ts/]);
    await files.getByRole("link", { name: "keel.ts" }).click();
    await expect(app).toHaveURL(/\/files\/src\/deep\/keel\.ts$/);
    await app.goto(`${hub.url}/s/${session}`);
    await (await found("grep")).getByRole("link", { name: "rudder.ts" }).click();
    await expect(app).toHaveURL(/\/files\/src\/rudder\.ts$/);
    await expect(app.getByTestId("file-text")).toContainText("left again");
  });
});

test("a picture that a tool gives back is shown", async ({ app, hub, model }) => {
  writeFileSync(join(hub.project, "dot.png"), Buffer.from(DOT, "base64"));
  await openPi(app, hub);
  model.script.push({ tool: "read", arguments: { path: "dot.png" } }, { text: "A dot, no more." });
  await say(app, "what is in dot.png?");
  await expect(app.getByText("A dot, no more.")).toBeVisible();
  const card = app.getByTestId("tool-card");
  await card.getByRole("button").first().click();
  const picture = card.getByRole("img", { name: "Result of read" });
  await expect(picture).toBeVisible();
  expect(await picture.evaluate((image: HTMLImageElement) => image.decode().then(() => image.naturalWidth))).toBe(1);
  expect(model.lastRequest).toContain("data:image/png;base64,");
});

test("a retry is a quiet divider", async ({ app, hub, model }) => {
  await openPi(app, hub);
  model.script.push({ status: 500 }, { text: "The second attempt went well." });
  await say(app, "try hard");
  await expect(answer(app)).toContainText("The second attempt went well.");
  await idle(app);
  await expect(app.locator('[data-testid="notice"][data-kind="retry"]').first()).toBeVisible();
});

test("an error of the model says why and what to do", async ({ app, hub, model }) => {
  await openPi(app, hub);
  model.script.push({ status: 400 });
  await say(app, "ask too much");
  await expect(app.getByText("the script wants it so").first()).toBeVisible();
  await expect(app.getByText("Send the message again, or choose another model.").first()).toBeVisible();
  await idle(app);
  await say(app, "again");
  await expect(answer(app)).toContainText("of the scripted model");
});

test("a conversation is compacted, which is a divider", async ({ app, hub, model }) => {
  await openPi(app, hub);
  for (const word of ["one", "two", "three"]) {
    model.script.push({ text: `${word} ${"and more words ".repeat(60)} end of ${word}` });
    await say(app, `tell ${word}`);
    await expect(answer(app)).toContainText(`end of ${word}`);
    await idle(app);
  }
  model.script.push({ text: "The summary of it all." }, { text: "The summary of it all." });
  await choose(app, "Compact…");
  const dialog = app.getByRole("dialog", { name: "Compact the conversation" });
  await dialog.getByRole("textbox", { name: /What the summary must keep/ }).fill("the numbers");
  await dialog.getByRole("button", { name: "Compact", exact: true }).click();
  await expect(app.locator('[data-testid="notice"][data-kind="compact"]').first()).toBeVisible();
  await expect(app.getByText(/^Compacted/).first()).toBeVisible();
  // All that was said can still be read.
  await expect(app.getByText("end of three")).toBeVisible();
});

test("the queue is visible: steer, follow up, edit, reorder, remove @both", async ({ app, hub, model }) => {
  await openPi(app, hub);
  const { happened, happen } = event();
  model.script.push({ text: "working on the first thing", until: happened });
  await say(app, "start");
  await expect(answer(app)).toContainText("working on");
  const queued = app.getByTestId("queued");
  await app.getByRole("radio", { name: "Steer now" }).click();
  await say(app, "turn left");
  await expect(queued).toHaveText([/Steers now.*turn left/]);
  await app.getByRole("radio", { name: "After this turn" }).click();
  await say(app, "then rest");
  await say(app, "never mind");
  await expect(queued).toHaveText([/turn left/, /After this turn.*then rest/, /After this turn.*never mind/]);
  await queued.nth(2).getByRole("button", { name: "Move up" }).click();
  await expect(queued).toHaveText([/turn left/, /never mind/, /then rest/]);
  await queued.nth(1).getByRole("button", { name: "Remove from the queue" }).click();
  await expect(queued).toHaveText([/turn left/, /then rest/]);
  await queued.nth(1).getByRole("button", { name: "Edit the queued message" }).click();
  await app.getByRole("textbox", { name: "Queued message" }).fill("then sleep");
  await queued.nth(1).getByRole("button", { name: "Save" }).click();
  await expect(queued).toHaveText([/turn left/, /After this turn.*then sleep/]);
  happen();
  await expect(queued).toHaveCount(0);
  await expect(app.locator('[data-testid="message"][data-role="user"]')).toHaveText([/start/, /turn left/, /then sleep/]);
  await idle(app);
  await expect(app.getByTestId("pending")).toHaveCount(0);
});

test("what waits for the end of the turn can be made to steer now", async ({ app, hub, model }) => {
  const session = await openPi(app, hub);
  const { happened, happen } = event();
  model.script.push({ text: "working on the first thing", until: happened });
  await say(app, "start");
  await expect(answer(app)).toContainText("working on");
  await composer(app).fill("later");
  await composer(app).press("Control+Enter");
  const queued = app.getByTestId("queued");
  await expect(queued).toHaveText([/After this turn.*later/]);
  await queued.getByRole("button", { name: "Steer now" }).click();
  await expect(queued).toHaveText([/Steers now.*later/]);
  const state = await hub.command<{ queue: unknown }>("get_state", { session_id: session });
  expect(state.queue).toEqual({ steering: ["later"], follow_up: [] });
  happen();
  await expect(queued).toHaveCount(0);
});

test("the agent is stopped with the button, and with Esc twice", async ({ app, hub, model }) => {
  await openPi(app, hub);
  model.script.push({ text: "an endless story without an end", until: event().happened });
  await say(app, "tell");
  await expect(answer(app)).toContainText("an endless");
  await app.getByRole("button", { name: /^Stop the agent/ }).click();
  await idle(app);
  await expect(answer(app)).toContainText("Stopped.");
  model.script.push({ text: "another endless story without an end", until: event().happened });
  await say(app, "tell more");
  await expect(answer(app)).toContainText("another");
  await composer(app).press("Escape");
  await expect(app.getByTestId("status-line")).toContainText("Press Esc again");
  await composer(app).press("Escape");
  await idle(app);
  await expect(app.getByText("Stopped.")).toHaveCount(2);
});

test("model and thinking level are chosen @both", async ({ app, hub }) => {
  const session = await openPi(app, hub);
  const levels = app.getByRole("menuitemcheckbox");
  await app.getByRole("button", { name: /Thinking level/ }).click();
  // What the model has, which is not everything there is.
  await expect(levels).toHaveText(["off", "minimal", "low", "medium", "high"]);
  await expect(levels.first()).toBeFocused();
  await levels.filter({ hasText: "high" }).click();
  await expect(app.getByRole("button", { name: /Thinking level/ })).toContainText("high");
  await app.getByRole("button", { name: "Model: scripted" }).click();
  const dialog = app.getByRole("dialog", { name: "Model" });
  await dialog.getByRole("searchbox", { name: "Find a model" }).fill("under");
  await dialog.getByRole("button", { name: /Understudy/ }).click();
  await expect(app.getByRole("button", { name: "Model: understudy" })).toBeVisible();
  await expect(dialog).toHaveCount(0);
  const state = await hub.command<{ model: { model_id: string } }>("get_state", { session_id: session });
  expect(state.model.model_id).toBe("understudy");
  await app.getByRole("button", { name: /Thinking level/ }).click();
  await expect(levels).toHaveText(["off"]);
});

test("a conversation is forked from a message, which can be changed @both", async ({ app, hub }) => {
  const session = await openPi(app, hub);
  for (const [number, word] of ["first", "second"].entries()) {
    await say(app, `the ${word} question`);
    await expect(answer(app)).toContainText(`Answer number ${number + 1} `);
    await idle(app);
  }
  const second = app.getByTestId("message").filter({ hasText: "the second question" });
  await second.hover();
  await second.getByRole("button", { name: "Fork from here" }).click();
  const dialog = app.getByRole("dialog", { name: "Fork the conversation" });
  await expect(dialog.getByRole("radio", { name: "the second question" })).toBeChecked();
  await dialog.getByRole("button", { name: "Fork here" }).click();
  await expect(composer(app)).toHaveValue("the second question");
  await expect(app.getByTestId("message").filter({ hasText: "the second question" })).toHaveCount(0);
  await composer(app).fill("a better question");
  await app.getByRole("button", { name: "Send", exact: true }).click();
  await expect(answer(app)).toContainText("Answer number 3 ");
  const said = (await hub.messages(session)).filter((message) => message.role === "user").map((message) => message.parts[0]?.text);
  expect(said).toEqual(["the first question", "a better question"]);
});

test("an image that is pasted reaches the model", async ({ app, hub, model }) => {
  await openPi(app, hub);
  await app.locator('.composer input[type="file"]').setInputFiles({ name: "dot.png", mimeType: "image/png", buffer: Buffer.from(DOT, "base64") });
  await expect(app.getByRole("img", { name: "Attached image 1" })).toBeVisible();
  await say(app, "what is this?");
  await expect(answer(app)).toContainText("of the scripted model");
  await expect(app.getByRole("list", { name: "Attached images" })).toHaveCount(0);
  await expect(app.locator('[data-testid="message"][data-role="user"] img')).toBeVisible();
  expect(model.lastRequest).toContain("data:image/png;base64,");
});

test("a session of 10,000 messages opens at its end and scrolls", async ({ app, hub, model }) => {
  test.setTimeout(120_000);
  const file = longSession(hub.project, 10_000);
  const session = await openPi(app, hub, { continue_session: file });
  await expect(app.getByText("answer number 5000,")).toBeInViewport();
  const state = await hub.command<{ message_count: number }>("get_state", { session_id: session });
  expect(state.message_count).toBe(10_000);
  // Only what is on the screen is in the page.
  expect(await app.getByTestId("message").count()).toBeLessThan(80);
  const opened = Date.now();
  await app.reload();
  await expect(app.getByText("answer number 5000,")).toBeInViewport();
  test.info().annotations.push({ type: "opened after", description: `${Date.now() - opened} ms` });
  await wheelTo(app, 9700);
  await app.getByRole("button", { name: "To the end" }).click();
  await expect(app.getByText("answer number 5000,")).toBeInViewport();
  await say(app, "and one more");
  await expect(answer(app)).toContainText("of the scripted model");
  expect(model.requests).toBe(1);
});

/** A picture of one dot. */
const DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

/** Turns the wheel up until messages as old as this one are on the screen. */
async function wheelTo(page: Page, idx: number): Promise<void> {
  await page.getByRole("log", { name: "Conversation" }).hover();
  await expect
    .poll(async () => {
      await page.mouse.wheel(0, -4000);
      return Number(await page.getByTestId("message").first().getAttribute("data-idx"));
    })
    .toBeLessThan(idx);
}
