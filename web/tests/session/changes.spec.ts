/** What changed in a session's directory: read, commented on, and sent to the agent as one prompt. */
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { somebody } from "../support/people.ts";
import { expect, test, type Hub, type Page } from "../support/test.ts";

test("staged, changed, new and deleted files are told apart, with their lines", async ({ app, hub }) => {
  repository(hub);
  await openChanges(app, hub);
  const list = app.getByRole("complementary", { name: "Changed files" });
  await expect(list.getByRole("region", { name: "Staged", exact: true }).getByRole("button")).toHaveText([/added: staged\.txt/]);
  await expect(list.getByRole("region", { name: "Not staged" }).getByRole("button")).toHaveText([/modified: code\.ts/, /deleted: gone\.txt/]);
  await expect(list.getByRole("region", { name: "Untracked" }).getByRole("button")).toHaveText([/new: fresh\.txt/]);
  await expect(app.getByTitle("Branch").filter({ hasText: "main" })).toBeVisible();

  const code = change(app, "code.ts");
  await expect(code).toContainText("removed: const second = 2;");
  await expect(code).toContainText("added: const second = 22;");
  await expect(change(app, "staged.txt")).toContainText("added: a staged line");
  await expect(change(app, "gone.txt")).toContainText("removed: going away");
  await expect(change(app, "fresh.txt")).toContainText("added: a new line");
  await list.getByRole("button", { name: /fresh\.txt/ }).click();
  await expect(change(app, "fresh.txt")).toBeInViewport();
  await code.getByRole("button", { name: /code\.ts/ }).first().click();
  await expect(code).not.toContainText("added: const second = 22;");

  // What is written now shows by itself, and what is undone goes.
  writeFileSync(join(hub.project, "later.txt"), "written later\n");
  await expect(list.getByRole("button", { name: /later\.txt/ })).toBeVisible();
  git(hub, "checkout", "gone.txt");
  await app.getByRole("button", { name: "Refresh" }).click();
  await expect(list.getByRole("button", { name: /gone\.txt/ })).toHaveCount(0);
});

test("a diff is read side by side, and stays so", async ({ app, hub }) => {
  repository(hub);
  await openChanges(app, hub);
  await app.getByRole("button", { name: "Side by side" }).click();
  const pair = change(app, "code.ts").locator(".pair").filter({ hasText: "second" });
  await expect(pair.locator(".side").nth(0)).toContainText("const second = 2;");
  await expect(pair.locator(".side").nth(1)).toContainText("const second = 22;");
  await app.reload();
  await expect(pair).toHaveCount(1);
  await app.getByRole("button", { name: "Unified" }).click();
  await expect(pair).toHaveCount(0);
  await expect(change(app, "code.ts")).toContainText("removed: const second = 2;");
});

test("comments on lines go to the agent as one prompt @both", async ({ app, hub }) => {
  repository(hub);
  const session = await openChanges(app, hub);
  await show(app, "code.ts");
  await comment(app, "code.ts", "added line 2", "Why twenty-two?");
  await comment(app, "code.ts", "removed line 2", "This was right.");
  await show(app, "fresh.txt");
  await comment(app, "fresh.txt", "added line 1", "A typo");
  const card = app.getByRole("article", { name: "Comment on fresh.txt:1" });
  await card.getByRole("button", { name: /Edit comment/ }).click();
  await card.getByRole("textbox").fill("Better words, please.");
  await card.getByRole("button", { name: "Save comment" }).click();
  await app.reload();
  await expect(app.getByTestId("review-bar")).toContainText("3 comments on this review");
  await show(app, "fresh.txt");
  await expect(card).toContainText("Better words, please.");
  await show(app, "code.ts");
  await change(app, "code.ts").getByRole("button", { name: /Delete comment/ }).first().click();
  await expect(app.getByTestId("review-bar")).toContainText("2 comments on this review");

  await app.getByRole("button", { name: "Send to the agent" }).click();
  const dialog = app.getByRole("dialog", { name: "Send the review" });
  await dialog.getByRole("textbox").fill("Nearly there.");
  await dialog.getByRole("button", { name: "Send 2 comments" }).click();
  await expect(app.getByTestId("review-bar")).toHaveCount(0);
  await app.getByRole("button", { name: "See conversation" }).click();
  await expect(app.locator('[data-testid="message"][data-role="user"]')).toHaveCount(1);
  const said = (await hub.messages(session)).filter((message) => message.role === "user");
  expect(said).toHaveLength(1);
  const text = said[0]?.parts[0]?.text ?? "";
  expect(text).toContain("Nearly there.");
  expect(text).toContain("`code.ts:2`");
  expect(text).toContain("`fresh.txt:1`\n> `a new line`\n\nBetter words, please.");
  await app.goBack();
  await expect(app.getByTestId("review-bar")).toHaveCount(0);
});

test("while the agent works a review steers it, or waits for the end of its turn", async ({ app, hub }) => {
  repository(hub);
  const session = await openChanges(app, hub);
  for (const [when, word] of [
    ["Now: before its next step", "steering words"],
    ["After this turn", "later words"],
  ] as const) {
    await comment(app, "code.ts", "added line 2", word);
    await app.getByRole("button", { name: "Send to the agent" }).click();
    const dialog = app.getByRole("dialog", { name: "Send the review" });
    // It works until its question is answered.
    await hub.command("prompt", { session_id: session, message: "/question" });
    await dialog.getByRole("radio", { name: when }).check();
    await dialog.getByRole("button", { name: "Send 1 comment" }).click();
    await expect(app.getByTestId("review-bar")).toHaveCount(0);
    await app.getByRole("link", { name: "Conversation" }).click();
    await app.getByTestId("question-card").getByRole("button").first().click();
    await expect.poll(() => saidWith(hub, session, word), { timeout: 30_000 }).toBe(1);
    await expect.poll(async () => (await hub.command<{ status: string }>("get_state", { session_id: session })).status, { timeout: 30_000 }).toBe("idle");
    await app.getByRole("link", { name: "Changes" }).click();
  }
});

test("a diff is commented on with the keyboard, and a review is dropped", async ({ app, hub }) => {
  repository(hub);
  await openChanges(app, hub);
  const lines = change(app, "code.ts").getByRole("button", { name: /^Comment on/ });
  await lines.first().focus();
  await app.keyboard.press("ArrowDown");
  await expect(lines.nth(1)).toBeFocused();
  await app.keyboard.press("Enter");
  await app.keyboard.type("With the keyboard");
  await app.keyboard.press("Control+Enter");
  await expect(app.getByTestId("review-comment")).toContainText("With the keyboard");
  await expect(lines.nth(1)).toBeFocused();
  await app.keyboard.press("Enter");
  await app.keyboard.type("Not this one");
  await app.keyboard.press("Escape");
  await expect(app.getByTestId("review-comment")).toHaveCount(1);
  await app.getByRole("button", { name: "Discard", exact: true }).click();
  await app.getByRole("dialog", { name: "Discard this review?" }).getByRole("button", { name: "Discard review" }).click();
  await expect(app.getByTestId("review-bar")).toHaveCount(0);
});

test("files in conflict are shown as such", async ({ app, hub }) => {
  repository(hub);
  git(hub, "stash", "--include-untracked");
  git(hub, "checkout", "-b", "other");
  commit(hub, "code.ts", "const other = 1;\n", "Other");
  git(hub, "checkout", "main");
  commit(hub, "code.ts", "const mine = 1;\n", "Mine");
  expect(() => git(hub, "merge", "other")).toThrow();
  await openChanges(app, hub);
  const conflicts = app.getByRole("complementary", { name: "Changed files" }).getByRole("region", { name: "Conflicts" });
  await expect(conflicts.getByRole("button")).toHaveText([/conflict: code\.ts/]);
  const code = change(app, "code.ts");
  await expect(code.getByText("conflict", { exact: true })).toBeVisible();
  for (const line of ["<<<<<<< HEAD", "const mine = 1;", "=======", "const other = 1;", ">>>>>>> other"]) {
    await expect(code).toContainText(`added: ${line}`);
  }
  await expect(code).toContainText("added+5");
  await code.getByRole("link", { name: "Open code.ts in Files" }).click();
  await expect(app.getByTestId("file-text")).toContainText("<<<<<<<");
});

test("the log is read, and everything since a commit is seen", async ({ app, hub }) => {
  repository(hub);
  commit(hub, "code.ts", "const first = 1;\nconst second = 22;\nconst third = 3;\n", "Two becomes twenty-two");
  await openChanges(app, hub);
  await app.getByRole("link", { name: "Log" }).click();
  await expect(app.getByRole("list", { name: "Commits" }).getByRole("listitem")).toHaveText([/Two becomes twenty-two/, /The beginning/]);
  await app.getByRole("button", { name: "Changes since The beginning" }).click();
  await expect(app.getByText(/Everything since commit/)).toBeVisible();
  await expect(change(app, "code.ts")).toContainText("added: const second = 22;");
  await app.getByRole("button", { name: "Only what is not committed" }).click();
  await expect(change(app, "fresh.txt")).toBeVisible();
  await expect(change(app, "code.ts")).toHaveCount(0);
});

test("what changed while the hub was away is seen when it is back", async ({ app, hub }) => {
  repository(hub);
  await openChanges(app, hub);
  await expect(change(app, "code.ts")).toContainText("added: const second = 22;");
  await hub.kill();
  await expect(app.getByTestId("connection")).toBeVisible();
  writeFileSync(join(hub.project, "code.ts"), "const first = 1;\nconst second = 23;\nconst third = 3;\n");
  await hub.start();
  await expect(change(app, "code.ts")).toContainText("added: const second = 23;", { timeout: 30_000 });
});

test("worktrees are listed, and a session starts in one", async ({ app, hub }) => {
  repository(hub);
  const place = join(hub.directory, "beside");
  git(hub, "worktree", "add", "-b", "feature", place);
  await openChanges(app, hub);
  await app.getByRole("link", { name: "Worktrees" }).click();
  const rows = app.getByRole("list", { name: "Worktrees" }).getByRole("listitem");
  await expect(rows).toHaveCount(2);
  await expect(rows.filter({ hasText: "this session" })).toContainText("main");
  await rows.filter({ hasText: "feature" }).getByRole("link", { name: `New session in ${place}` }).click();
  await expect(app.getByLabel(/^Directory/)).toHaveValue(place);
});

test("a directory without git, and one without changes, say so", async ({ app, hub }) => {
  const session = await hub.demo();
  await app.goto(`${hub.url}/s/${session}/changes`);
  await expect(app.getByText("No changes to show")).toBeVisible();
  git(hub, "init", "--initial-branch", "main");
  commit(hub, "code.ts", "one\n", "First");
  await app.getByRole("button", { name: "Refresh" }).first().click();
  await expect(app.getByText("Nothing has changed")).toBeVisible();
});

test("on a phone it goes from the list to a file and on @phone", async ({ app, hub }) => {
  repository(hub);
  await openChanges(app, hub);
  await app.getByRole("button", { name: /code\.ts/ }).click();
  await expect(app.getByText("File 2 of 4")).toBeVisible();
  await expect(change(app, "code.ts")).toContainText("const second = 22;");
  await app.getByRole("button", { name: "Next file" }).click();
  await expect(change(app, "gone.txt")).toContainText("going away");
  await app.getByRole("button", { name: "Back to all changes" }).click();
  await expect(app.getByTestId("changed-file")).toHaveCount(4);
});

test("who may only look reads the changes and comments on nothing", async ({ hub, browser }) => {
  repository(hub);
  const session = await hub.demo();
  const viewer = await somebody(browser, hub, "viewer");
  await viewer.goto(`${hub.url}/s/${session}/changes`);
  await expect(change(viewer, "code.ts")).toContainText("added: const second = 22;");
  await expect(viewer.getByRole("button", { name: /^Comment on/ })).toHaveCount(0);
  await expect(viewer.getByText("Choose a line's number")).toHaveCount(0);
  await viewer.getByRole("link", { name: "Worktrees" }).click();
  await expect(viewer.getByRole("list", { name: "Worktrees" }).getByRole("listitem")).toContainText("this session");
  await expect(viewer.getByRole("link", { name: /^New session/ })).toHaveCount(0);
});

/** A repository with one commit and a change of every kind. */
function repository(hub: Hub): void {
  git(hub, "init", "--initial-branch", "main");
  writeFileSync(join(hub.project, "gone.txt"), "going away\n");
  commit(hub, "code.ts", "const first = 1;\nconst second = 2;\nconst third = 3;\n", "The beginning");
  writeFileSync(join(hub.project, "code.ts"), "const first = 1;\nconst second = 22;\nconst third = 3;\n");
  rmSync(join(hub.project, "gone.txt"));
  writeFileSync(join(hub.project, "staged.txt"), "a staged line\n");
  git(hub, "add", "staged.txt");
  writeFileSync(join(hub.project, "fresh.txt"), "a new line\n");
}

function git(hub: Hub, ...words: string[]): void {
  mkdirSync(hub.project, { recursive: true });
  const identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false"];
  execFileSync("git", [...identity, ...words], { cwd: hub.project, env: hub.environment, stdio: "pipe" });
}

function commit(hub: Hub, path: string, content: string, subject: string): void {
  writeFileSync(join(hub.project, path), content);
  git(hub, "add", ...(subject === "The beginning" ? ["--all"] : [path]));
  git(hub, "commit", "--message", subject, ...(subject === "The beginning" ? [] : ["--only", path]));
}

async function openChanges(page: Page, hub: Hub): Promise<string> {
  const session = await hub.demo();
  await page.goto(`${hub.url}/s/${session}`);
  await page.getByRole("link", { name: "Changes" }).click();
  await expect(page.getByTestId("changed-file").first()).toBeVisible();
  return session;
}

function change(page: Page, path: string) {
  return page.getByTestId("file-change").and(page.getByRole("region", { name: path, exact: true }));
}

/** On a phone one file is shown at a time. */
async function show(page: Page, path: string): Promise<void> {
  const back = page.getByRole("button", { name: "Back to all changes" });
  await expect(back.or(page.getByTestId("changed-file")).filter({ visible: true }).first()).toBeVisible();
  if (await back.isVisible()) await back.click();
  await page.getByTestId("changed-file").filter({ hasText: path }).click();
  await expect(change(page, path)).toBeVisible();
}

/** Writes a comment on a line of a file. */
async function comment(page: Page, path: string, line: string, text: string): Promise<void> {
  await change(page, path).getByRole("button", { name: new RegExp(`^Comment on ${line}:`) }).first().click();
  await page.getByRole("textbox", { name: /^Comment on/ }).fill(text);
  await page.getByRole("button", { name: "Add comment" }).click();
  await expect(page.getByTestId("review-comment").filter({ hasText: text })).toBeVisible();
}

async function saidWith(hub: Hub, session: string, word: string): Promise<number> {
  const messages = await hub.messages(session);
  return messages.filter((message) => message.role === "user" && message.parts.some((part) => part.text?.includes(word))).length;
}
