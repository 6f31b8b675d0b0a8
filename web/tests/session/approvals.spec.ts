/** What waits for a person: the inbox, the card in place, and every kind of question. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { expect, extension, openPi, test, type Hub, type Page } from "../support/pi.ts";
import { idle, say } from "../support/talk.ts";

test("a command waits in the inbox, with all of it to read, and is approved @both", async ({ app, hub }) => {
  const session = await hub.demo("The good ship");
  const operator = await operatorOf(hub);
  await expect(app).not.toHaveTitle(/^\(/);
  const done = operator("host.bash", { session_id: session, command: "echo made > it.txt", timeout_ms: 20_000 });
  await expect(app).toHaveTitle(/^\(1\) /);
  await app.getByRole("link", { name: /Approvals/ }).first().click();
  await expect(app.getByText("1 question waits")).toBeVisible();
  const inbox = app.getByTestId("session-questions");
  await expect(inbox).toContainText("The good ship");
  const card = inbox.getByTestId("question-card");
  await expect(card.getByRole("group", { name: "Command" })).toHaveText("$ echo made > it.txt");
  await expect(card).toContainText("timeout_ms");
  expect(existsSync(join(hub.project, "it.txt"))).toBe(false);
  await card.getByRole("button", { name: "Approve" }).click();
  await expect(inbox.getByTestId("answered")).toContainText("approved by you");
  await expect(app.getByText("Nothing needs your answer")).toBeVisible();
  await expect(app).not.toHaveTitle(/^\(/);
  expect((await done).success).toBe(true);
  expect(readFileSync(join(hub.project, "it.txt"), "utf8")).toBe("made\n");
});

test("the icon of the page wears the number of sessions that wait, and none when nothing does", async ({ app, hub }) => {
  const icon = app.locator('link[rel="icon"]');
  await expect(icon).toHaveAttribute("href", "/icon.svg");
  const [first, second] = [await hub.demo("First"), await hub.demo("Second")];
  await hub.command("prompt", { session_id: first, message: "/question" });
  await expect(icon).toHaveAttribute("href", /^data:image\/png/);
  await expect(icon).toHaveAttribute("type", "image/png");
  const one = (await icon.getAttribute("href")) ?? "";
  await hub.command("prompt", { session_id: second, message: "/question" });
  await expect(icon).not.toHaveAttribute("href", one);
  // And the title says it on every page.
  for (const [key, name, title] of [["h", "History", "History"], ["u", "Usage", "Usage"], ["s", "Settings", "Profile · Settings"], ["f", "Fleet", "Fleet"]] as const) {
    await app.keyboard.press("g");
    await app.keyboard.press(key);
    await expect(app.getByRole("heading", { name, level: 1 })).toBeVisible();
    await expect(app).toHaveTitle(`(2) ${title} · Quarterdeck`);
  }
  // It is a picture, with the mark in its corner.
  const [width, red] = await app.evaluate(async (source) => {
    const image = new Image();
    image.src = source;
    await image.decode();
    const pen = document.createElement("canvas").getContext("2d");
    pen?.drawImage(image, 0, 0);
    const [r = 0, g = 0, b = 0] = pen?.getImageData(30, 52, 1, 1).data ?? [];
    return [image.naturalWidth, r > 150 && g < 100 && b < 60] as const;
  }, one);
  expect([width, red]).toEqual([64, true]);
  for (const session of [first, second]) await hub.command("abort", { session_id: session });
  await expect(icon).toHaveAttribute("href", "/icon.svg");
});

test("a write is a diff in its session, and is denied with a reason @both", async ({ app, hub }) => {
  writeFileSync(join(hub.project, "crew.txt"), "Ada\nBob\nCid\n");
  const session = await hub.demo();
  const operator = await operatorOf(hub);
  await app.goto(`${hub.url}/s/${session}`);
  const done = operator("fs.write", { session_id: session, path: "crew.txt", content: "Ada\nEve\nCid\n" });
  const card = app.getByTestId("question-card");
  await expect(card).toContainText("Write a file");
  const change = card.getByRole("group", { name: "Changes to crew.txt" });
  await expect(change).toContainText("removed: Bob");
  await expect(change).toContainText("added: Eve");
  await expect(app.getByTestId("status-line")).toContainText("Waiting for your answer");
  await card.getByRole("button", { name: "Deny…" }).click();
  await card.getByRole("textbox", { name: "Reason for denying" }).fill("Bob stays");
  await card.getByRole("button", { name: "Deny", exact: true }).click();
  await expect(card).toHaveCount(0);
  await expect(app.getByTestId("notice").filter({ hasText: "denied by you: Bob stays" })).toBeVisible();
  const outcome = await done;
  expect(outcome.success).toBe(false);
  expect(JSON.stringify(outcome)).toContain("Bob stays");
  expect(readFileSync(join(hub.project, "crew.txt"), "utf8")).toContain("Bob");
});

test("what is allowed for the session is not asked again", async ({ app, hub }) => {
  const session = await hub.demo();
  const operator = await operatorOf(hub);
  await app.goto(`${hub.url}/s/${session}`);
  const first = operator("fs.write", { session_id: session, path: "one.txt", content: "1" });
  const card = app.getByTestId("question-card");
  await expect(card.getByText("A new file")).toBeVisible();
  await card.getByRole("button", { name: "Allow for this session" }).click();
  expect((await first).success).toBe(true);
  expect((await operator("fs.write", { session_id: session, path: "two.txt", content: "2" })).success).toBe(true);
  expect(readFileSync(join(hub.project, "two.txt"), "utf8")).toBe("2");
  // Another operation is another question.
  const other = operator("host.bash", { session_id: session, command: "true" });
  await expect(card.getByRole("group", { name: "Command" })).toHaveText("$ true");
  await card.getByRole("button", { name: "Approve" }).click();
  expect((await other).success).toBe(true);
});

test("a command that hides something is marked before it is approved", async ({ app, hub }) => {
  const session = await hub.demo();
  const operator = await operatorOf(hub);
  await app.goto(`${hub.url}/s/${session}`);
  void operator("host.bash", { session_id: session, command: `ls #\u202E fr- mr\u200B${" ".repeat(400)}; rm -rf x` }).catch(() => undefined);
  const card = app.getByTestId("question-card");
  await expect(card.getByRole("note")).toContainText("It contains 2 invisible characters");
  await expect(card.getByRole("group", { name: "Command" })).toContainText("‹U+202E›");
  await expect(card.getByRole("group", { name: "Command" })).toContainText("rm -rf x");
  await card.getByRole("button", { name: "Deny…" }).click();
  await card.getByRole("textbox", { name: "Reason for denying" }).press("Enter");
  await expect(card).toHaveCount(0);
});

test("two sessions ask, and the inbox has both, the one that waits longest first", async ({ app, hub }) => {
  for (const title of ["elder", "younger"]) {
    const session = await hub.demo(title);
    await hub.command("prompt", { session_id: session, message: "/question" });
    await expect(app.getByTestId("session-row").filter({ hasText: title }).first()).toContainText(/asks you/i);
  }
  await expect(app).toHaveTitle(/^\(2\) /);
  await app.getByRole("link", { name: /Approvals/ }).first().click();
  await expect(app.getByText("2 questions wait")).toBeVisible();
  await expect(app.getByTestId("session-questions")).toContainText([/elder/, /younger/]);
  await app.getByRole("region", { name: "elder" }).getByRole("button", { name: "green" }).click();
  await expect(app.getByText("1 question waits")).toBeVisible();
  await expect(app.getByRole("region", { name: "elder" }).getByTestId("answered")).toContainText("answered by you: green");
  await app.getByRole("region", { name: "younger" }).getByRole("link", { name: /younger/ }).click();
  await app.getByTestId("question-card").getByRole("button", { name: "blue" }).click();
  await expect(app.getByTestId("question-card")).toHaveCount(0);
  await expect(app.getByTestId("notice").filter({ hasText: "answered by you: blue" })).toBeVisible();
  await expect(app.locator('[data-testid="message"][data-role="assistant"]').last()).toContainText("blue");
});

test("pi's extensions select, confirm, ask for a line and for a text @both", async ({ app, hub }) => {
  await openPi(app, hub, { extensions: [extension("dialogs.ts")] });
  const card = app.getByTestId("question-card");
  await say(app, "/dlg-select");
  await expect(card).toContainText("Pick one");
  await card.getByRole("button", { name: "Block" }).click();
  await heard(app, 'dlg-select: "Block"');

  await say(app, "/dlg-confirm");
  await expect(card).toContainText("All will be lost");
  await card.getByRole("button", { name: "No" }).click();
  await heard(app, "dlg-confirm: false");
  await say(app, "/dlg-confirm");
  await card.getByRole("button", { name: "Yes" }).click();
  await heard(app, "dlg-confirm: true");

  await say(app, "/dlg-input");
  await card.getByRole("textbox", { name: "Name?" }).fill("Ada");
  await card.getByRole("textbox", { name: "Name?" }).press("Enter");
  await heard(app, 'dlg-input: "Ada"');

  await say(app, "/dlg-editor");
  const editor = card.getByRole("textbox", { name: "Edit text" });
  await expect(editor).toHaveValue("line 1\nline 2");
  await editor.fill("line 1\nline three");
  await card.getByRole("button", { name: "Send" }).click();
  await heard(app, 'dlg-editor: "line 1\\nline three"');

  await say(app, "/dlg-select");
  await card.getByRole("button", { name: "Dismiss" }).click();
  await heard(app, "dlg-select: null");
  await idle(app);
});

test("an interview is a form, checked before it is sent @both", async ({ app, hub }) => {
  await openPi(app, hub, { extensions: [extension("interview.ts")] });
  await say(app, "/ask-interview");
  const card = app.getByTestId("question-card");
  await expect(card).toContainText("New project");
  await card.getByRole("button", { name: "Send" }).click();
  await expect(card.getByText("This needs an answer.")).toBeVisible();
  await expect(card.getByRole("textbox", { name: "What is it called?" })).toBeFocused();
  await card.getByRole("textbox", { name: "What is it called?" }).fill("Ada");
  await card.getByRole("combobox", { name: /Which kind/ }).selectOption("library");
  await card.getByRole("button", { name: "Send" }).click();
  await expect(card).toHaveCount(0);
  await heard(app, '"name":"Ada"');
  await expect(app.getByText('"kind":"library"').first()).toBeVisible();
});

test("pi's tool waits for the answer in another place too", async ({ app, hub, model, browser }) => {
  model.script.push({ tool: "bash", arguments: { command: "echo allowed > it" } }, { text: "It is done." });
  const session = await openPi(app, hub, { extensions: [extension("gate.ts")] });
  await say(app, "do it");
  await expect(app.getByTestId("question-card")).toContainText("Allow bash?");
  const phone = await (await browser.newContext({ storageState: await app.context().storageState() })).newPage();
  await phone.goto(`${hub.url}/approvals`);
  await expect(phone.getByTestId("question-card")).toContainText("echo allowed > it");
  await phone.getByTestId("question-card").getByRole("button", { name: "Yes" }).click();
  await expect(app.getByTestId("question-card")).toHaveCount(0);
  await expect(app.getByText("It is done.")).toBeVisible();
  expect((await hub.messages(session)).length).toBeGreaterThan(0);
  expect(readFileSync(join(hub.project, "it"), "utf8")).toBe("allowed\n");
});

interface Outcome {
  success: boolean;
  error?: string;
}

/** Somebody whose writes and commands have to be approved: a token that may not manage. */
async function operatorOf(hub: Hub): Promise<(cmd: string, parameters: object) => Promise<Outcome>> {
  const { token } = await hub.rest<{ token: string }>("POST", "/api/tokens", { name: "script", scopes: ["view", "operate", "files", "shell"] });
  return async (cmd, parameters) => {
    const headers = { authorization: `Bearer ${token}`, "content-type": "application/json", connection: "close" };
    const answer = await fetch(`${hub.url}/api/commands`, { method: "POST", headers, body: JSON.stringify({ cmd, ...parameters }) });
    return (await answer.json()) as Outcome;
  };
}

/** The extension tells what it was answered. */
async function heard(page: Page, words: string): Promise<void> {
  await expect(page.getByTestId("notice").filter({ hasText: words }).last()).toBeVisible();
}
