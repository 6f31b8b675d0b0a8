/** A conversation with the demo agent: reading what it does, and writing to it. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { answer, choose, composer, idle, say } from "../support/talk.ts";
import { expect, test, type Hub, type Page } from "../support/test.ts";

/** A picture of one dot. */
const DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

test("an answer streams in, and thinking is folded away @both", async ({ app, hub }) => {
  await open(app, hub);
  await expect(app.getByText("No messages yet")).toBeVisible();
  await say(app, "/thinking");
  await expect(answer(app)).toContainText("Thinking…");
  await expect(answer(app)).toContainText("I thought about it first");
  await idle(app);
  const thought = answer(app).getByRole("button", { name: /^Thought/ });
  await expect(thought).toHaveAttribute("aria-expanded", "false");
  await expect(app.getByText("take the simpler one")).toHaveCount(0);
  await thought.click();
  await expect(app.getByText("take the simpler one")).toBeVisible();
  await thought.click();
  await expect(app.getByText("take the simpler one")).toHaveCount(0);
});

test("a message that was accepted when the server died is marked, and sent again", async ({ app, hub }) => {
  await open(app, hub);
  // The agent accepts it, and would show that it has read it five seconds later.
  await say(app, "/late 5000 paint the hull");
  await expect(app.getByTestId("session-status")).not.toHaveText("idle");
  await hub.kill();
  await hub.start();
  const marked = app.getByTestId("message").filter({ hasText: "paint the hull" });
  await expect(marked).toContainText("stopped before it showed that it had read this", { timeout: 30_000 });
  await marked.getByRole("button", { name: "Send again" }).click();
  await expect(app.getByTestId("message").filter({ hasText: "paint the hull" })).toHaveCount(2);
  await idle(app);
  await expect(app.getByRole("button", { name: "Send again" })).toHaveCount(0);
});

test("tool calls are cards with status, command and output @both", async ({ app, hub }) => {
  await open(app, hub);
  await say(app, "/tools");
  const shell = app.getByTestId("tool-card").filter({ hasText: "echo hello" });
  const read = app.getByTestId("tool-card").filter({ hasText: "README.md" });
  await expect(shell).toHaveAttribute("data-status", "running");
  await expect(shell).toHaveAttribute("data-status", "done");
  await expect(read).toHaveAttribute("data-status", "done");
  await idle(app);
  // A command is open, with how long it took; a file that was read is a line until it is opened.
  await expect(shell.getByRole("group", { name: "Output" })).toHaveText("hello");
  await expect(shell.getByText(/\d ?m?s$/)).toBeVisible();
  await expect(read.getByRole("group", { name: "README.md" })).toHaveCount(0);
  await read.getByRole("button").click();
  await expect(read.getByRole("group", { name: "README.md" })).toContainText("# Demo");
});

test("an answer that fails says why and what to do", async ({ app, hub }) => {
  await open(app, hub);
  await say(app, "/error");
  await expect(answer(app)).toContainText("The demo model is overloaded (on purpose)");
  await expect(answer(app)).toContainText("Send the message again, or choose another model.");
  await idle(app);
});

test("who reads further up is left alone and told that there is more", async ({ app, hub }) => {
  await open(app, hub);
  await say(app, "/long 900");
  await expect(answer(app)).toContainText("word899");
  await idle(app);
  const log = app.getByRole("log", { name: "Conversation" });
  await log.focus();
  await app.keyboard.press("Home");
  await expect.poll(() => log.evaluate((element) => element.scrollTop)).toBe(0);
  await hub.command("prompt", { session_id: new URL(app.url()).pathname.slice(3), message: "/text" });
  const pill = app.getByRole("button", { name: "New messages" });
  await expect(pill).toBeVisible();
  expect(await log.evaluate((element) => element.scrollTop)).toBe(0);
  await pill.click();
  await expect(answer(app)).toContainText("ends here.");
  await expect(answer(app)).toBeInViewport();
  await expect(pill).toHaveCount(0);
});

test("slash commands and @ files are completed", async ({ app, hub }) => {
  mkdirSync(join(hub.project, "src/deep"), { recursive: true });
  writeFileSync(join(hub.project, "src/deep/rudder.ts"), "");
  writeFileSync(join(hub.project, "README.md"), "");
  await open(app, hub);
  const field = composer(app);
  const options = app.getByRole("listbox", { name: "Suggestions" }).getByRole("option");
  await field.pressSequentially("/th");
  await expect(options).toHaveText([/\/thinking.*thinking, then an answer/]);
  await field.press("Tab");
  await expect(field).toHaveValue("/thinking ");
  await expect(options).toHaveCount(0);

  await field.fill("look at ");
  await field.press("End");
  await field.pressSequentially("@rud");
  await expect(options.first()).toHaveText("src/deep/rudder.ts");
  await field.press("Enter");
  await expect(field).toHaveValue("look at @src/deep/rudder.ts ");
  await field.pressSequentially("@nothingtofind");
  await expect(options).toHaveText(["Nothing found."]);
  await field.press("Escape");
  await expect(options).toHaveCount(0);
  await expect(field).toHaveValue(/@nothingtofind$/);
  await field.fill("");
  await field.pressSequentially("@");
  await options.filter({ hasText: "README.md" }).click();
  await expect(field).toHaveValue("@README.md ");
});

test("images are pasted, dropped, chosen and removed; other files are refused with a word", async ({ app, hub }) => {
  await open(app, hub);
  const images = app.getByRole("list", { name: "Attached images" }).getByRole("listitem");
  await bring(app, "paste", "dot.png", "image/png");
  await expect(images).toHaveCount(1);
  await bring(app, "drop", "dot.png", "image/png");
  await expect(images).toHaveCount(2);
  await app.locator('.composer input[type="file"]').setInputFiles({ name: "dot.png", mimeType: "image/png", buffer: Buffer.from(DOT, "base64") });
  await expect(images).toHaveCount(3);
  await bring(app, "drop", "drawing.svg", "image/svg+xml");
  await expect(app.getByText("drawing.svg is not an image that agents can read.")).toBeVisible();
  await app.getByRole("button", { name: "Remove image 3" }).click();
  await expect(images).toHaveCount(2);
});

test("a draft stays through a reload, and is gone when it was sent @both", async ({ app, hub }) => {
  const session = await open(app, hub);
  await composer(app).fill("half a thought");
  await app.reload();
  await expect(composer(app)).toHaveValue("half a thought");
  // Drafts are of their session.
  await app.goto(`${hub.url}/s/${await hub.demo()}`);
  await expect(composer(app)).toHaveValue("");
  await app.goto(`${hub.url}/s/${session}`);
  await expect(composer(app)).toHaveValue("half a thought");
  await app.getByRole("button", { name: "Send", exact: true }).click();
  await expect(app.getByTestId("message").first()).toContainText("half a thought");
  await app.reload();
  await expect(app.getByTestId("message").first()).toBeVisible();
  await expect(composer(app)).toHaveValue("");
});

test("Shift+Enter is a new line, Enter sends", async ({ app, hub }) => {
  await open(app, hub);
  await composer(app).pressSequentially("one");
  await composer(app).press("Shift+Enter");
  await composer(app).pressSequentially("two");
  await expect(composer(app)).toHaveValue("one\ntwo");
  await composer(app).press("Enter");
  await expect(composer(app)).toHaveValue("");
  await expect(app.getByTestId("message").first()).toContainText("one\ntwo", { useInnerText: true });
});

test("a session is renamed, and its facts are told @both", async ({ app, hub }) => {
  const session = await open(app, hub);
  await say(app, "/text");
  await expect(answer(app)).toContainText("ends here.");
  await idle(app);
  await choose(app, "Rename");
  await app.getByRole("textbox", { name: "Title" }).fill("The good ship");
  await app.getByRole("button", { name: "Rename" }).click();
  await expect(app.getByRole("heading", { name: "The good ship" })).toBeVisible();
  await expect(app).toHaveTitle(/The good ship/);
  await choose(app, "Session info");
  const dialog = app.getByRole("dialog", { name: "Session info" });
  await expect(dialog).toContainText(session);
  await expect(dialog).toContainText("demo-1");
  await app.keyboard.press("Escape");
  await expect(dialog).toHaveCount(0);
});

test("a session is exported as HTML, Markdown and JSON", async ({ app, hub }) => {
  await open(app, hub);
  await say(app, "tell <me> & all");
  await expect(answer(app)).toContainText("with a real agent.");
  await idle(app);
  const html = await exported(app, "Export as HTML");
  expect(html.name).toMatch(/\.html$/);
  const page = await app.context().newPage();
  await page.setContent(html.text);
  await expect(page.getByText("tell <me> & all")).toBeVisible();
  await expect(page.getByText("I am the demo agent")).toBeVisible();
  const markdown = await exported(app, "Export as Markdown");
  expect(markdown.name).toMatch(/\.md$/);
  expect(markdown.text).toContain("I am the demo agent");
  const json = await exported(app, "Export as JSON");
  expect(json.name).toMatch(/\.json$/);
  const parsed = JSON.parse(json.text) as { messages: { role: string }[] };
  expect(parsed.messages.map((message) => message.role)).toEqual(["user", "assistant"]);
});

test("a message is copied", async ({ app, hub }) => {
  await app.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await open(app, hub);
  await say(app, "/text");
  await expect(answer(app)).toContainText("ends here.");
  await idle(app);
  await answer(app).hover();
  await answer(app).getByRole("button", { name: "Copy the message" }).click();
  await expect(app.getByText("Copied.")).toBeVisible();
  expect(await app.evaluate(() => navigator.clipboard.readText())).toContain("This is a short answer.");
});

test("a closed session says so and is opened again where one reads it", async ({ app, hub }) => {
  await open(app, hub);
  await say(app, "/text");
  await expect(answer(app)).toContainText("ends here.");
  await idle(app);
  await choose(app, "Close");
  await expect(app.getByTestId("status-line")).toContainText("Closed.");
  await expect(composer(app)).toBeDisabled();
  await app.getByTestId("status-line").getByRole("button", { name: "Reopen" }).click();
  await expect(composer(app)).toBeEnabled();
  await say(app, "/text");
  await expect(app.locator('[data-testid="message"][data-role="assistant"]')).toHaveCount(2);
});

/** A new session of the demo agent, on the screen. */
async function open(page: Page, hub: Hub): Promise<string> {
  const session = await hub.demo();
  await page.goto(`${hub.url}/s/${session}`);
  await expect(composer(page)).toBeVisible();
  return session;
}

/** Pastes or drops a file into the composer, as the browser reports it. */
async function bring(page: Page, how: "paste" | "drop", name: string, type: string): Promise<void> {
  await composer(page).evaluate(
    (field, { how, name, type, data }) => {
      const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
      const transfer = new DataTransfer();
      transfer.items.add(new File([bytes], name, { type }));
      const options = { bubbles: true, cancelable: true };
      const event = how === "paste" ? new ClipboardEvent("paste", { ...options, clipboardData: transfer }) : new DragEvent("drop", { ...options, dataTransfer: transfer });
      field.dispatchEvent(event);
    },
    { how, name, type, data: DOT },
  );
}

async function exported(page: Page, name: string): Promise<{ name: string; text: string }> {
  const coming = page.waitForEvent("download");
  await choose(page, name);
  const download = await coming;
  return { name: download.suggestedFilename(), text: readFileSync(await download.path(), "utf8") };
}
