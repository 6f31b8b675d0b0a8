/** A new session in a few clicks: where, what, with which words; and the next one starts from what was chosen. */
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { test as piTest } from "../support/pi.ts";
import { Runner } from "../support/runner.ts";
import { expect, test, type Hub, type Page } from "../support/test.ts";

/** One red pixel. */
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

test("the demo is one click @both", async ({ app }) => {
  await openForm(app);
  await app.getByRole("button", { name: "Try the demo" }).click();
  await expect(app.getByRole("heading", { name: "Demo", level: 1 })).toBeVisible();
  await expect(app.getByTestId("message").filter({ hasText: "I am the demo agent" })).toBeVisible();
});

test("directory, title, first prompt and an image; the next form remembers @both", async ({ app, hub }) => {
  mkdirSync(join(hub.project, "ship", "hull"), { recursive: true });
  mkdirSync(join(hub.project, "shore"));
  await openForm(app);
  await app.getByRole("radio", { name: /^demo/ }).check({ force: true });
  const directory = app.getByRole("combobox", { name: "Directory" });
  await directory.fill(`${hub.project}/sh`);
  const list = app.getByRole("listbox", { name: "Directories" });
  await expect(list.getByRole("option")).toHaveText([/project\/ship$/, /project\/shore$/]);
  await list.getByRole("option", { name: /ship$/ }).click();
  await expect(list.getByRole("option")).toHaveText([/project\/ship\/hull$/]);
  await directory.press("ArrowDown");
  await directory.press("Enter");
  await expect(directory).toHaveValue(`${hub.project}/ship/hull/`);

  await app.getByLabel("First prompt").fill("What is in the picture?");
  for (const name of ["one.png", "two.png"]) {
    await app.locator('input[type="file"]').setInputFiles({ name, mimeType: "image/png", buffer: Buffer.from(PIXEL, "base64") });
  }
  await expect(app.getByRole("img", { name: /Attached image/ })).toHaveCount(2);
  await app.getByRole("button", { name: "Remove image 2" }).click();
  await expect(app.getByRole("img", { name: /Attached image/ })).toHaveCount(1);
  await app.getByLabel("Title").fill("Pictures");
  await app.getByRole("button", { name: "Start session" }).click();

  await expect(app.getByRole("heading", { name: "Pictures", level: 1 })).toBeVisible();
  await expect(app.getByTestId("message").filter({ hasText: "What is in the picture?" })).toHaveCount(1);
  await expect(app.getByTestId("message").filter({ hasText: "I am the demo agent" })).toBeVisible();
  const [session] = await sessions(hub);
  expect(session).toMatchObject({ title: "Pictures", harness: "demo", cwd: join(hub.project, "ship", "hull") });

  await app.goto(`${hub.url}/new`);
  await expect(app.getByRole("radio", { name: /^demo/ })).toBeChecked();
  await expect(app.getByRole("combobox", { name: "Directory" })).toHaveValue(join(hub.project, "ship", "hull"));
  await app.getByRole("combobox", { name: "Directory" }).fill("");
  await expect(app.getByRole("listbox", { name: "Directories" }).getByRole("option").first()).toContainText("ship/hull");
});

test("an image is pasted into the first prompt, and Ctrl+Enter starts", async ({ app, hub }) => {
  await openForm(app);
  await app.getByRole("radio", { name: /^demo/ }).check({ force: true });
  const prompt = app.getByLabel("First prompt");
  await prompt.fill("See for yourself");
  await prompt.evaluate((field, base64) => {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const clipboardData = new DataTransfer();
    clipboardData.items.add(new File([bytes], "pasted.png", { type: "image/png" }));
    field.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
  }, PIXEL);
  await expect(app.getByRole("img", { name: "Attached image 1" })).toBeVisible();
  await prompt.press("Control+Enter");
  await expect(app.getByTestId("message").filter({ hasText: "See for yourself" })).toBeVisible();
  expect(await sessions(hub)).toHaveLength(1);
});

test("a git worktree on request", async ({ app, hub }) => {
  repository(hub.project);
  await openForm(app);
  await app.getByRole("radio", { name: /^demo/ }).check({ force: true });
  await app.getByRole("combobox", { name: "Directory" }).fill(hub.project);
  const wanted = app.getByRole("switch", { name: "Work in a new git worktree" });
  await expect(app.getByText("The directory is on trunk.")).toBeVisible();
  await wanted.click();
  await app.getByLabel("Branch").fill("repaint");
  await app.getByRole("button", { name: "Start session" }).click();
  await expect(app.getByTestId("session-header")).toContainText("repaint");
  const [session] = await sessions(hub);
  expect(session?.branch).toBe("repaint");
  expect(session?.cwd).not.toBe(hub.project);
  expect(git(hub.project, "branch", "--show-current")).toBe("trunk");
  expect(git(hub.project, "worktree", "list")).toContain("repaint");
});

test("a program in a terminal; its command is offered the next time @both", async ({ app, hub }) => {
  await openForm(app);
  await app.getByRole("radio", { name: /Program in a terminal/ }).check({ force: true });
  await app.getByRole("combobox", { name: "Directory" }).fill(hub.project);
  const command = "echo hello from the form; sleep 1000";
  await app.getByRole("textbox", { name: "Command" }).fill(command);
  await app.getByRole("button", { name: "Start session" }).click();
  await expect(app.locator(".xterm-rows, .xterm-screen").first()).toBeVisible();
  const [session] = await sessions(hub);
  expect(session).toMatchObject({ harness: "pty", cwd: hub.project });
  const screen = () => hub.command<{ text?: string; lines?: string[] }>("run.screen", { session_id: session?.session_id });
  await expect.poll(async () => JSON.stringify(await screen())).toContain("hello from the form");

  await app.goto(`${hub.url}/new`);
  await expect(app.getByRole("radio", { name: /Program in a terminal/ })).toBeChecked();
  await app.getByRole("group", { name: "Commands to choose from" }).getByRole("button", { name: command }).click();
  await expect(app.getByRole("textbox", { name: "Command" })).toHaveValue(command);
});

piTest("the image of the first prompt reaches the agent", async ({ app, hub, model }) => {
  await openForm(app);
  await app.getByRole("radio", { name: /^pi/ }).check({ force: true });
  await app.getByRole("combobox", { name: "Directory" }).fill(hub.project);
  await app.getByLabel("First prompt").fill("What is in the picture?");
  await app.locator('input[type="file"]').setInputFiles({ name: "one.png", mimeType: "image/png", buffer: Buffer.from(PIXEL, "base64") });
  await expect(app.getByRole("img", { name: "Attached image 1" })).toBeVisible();
  await app.getByRole("button", { name: "Start session" }).click();
  await expect(app.getByTestId("message").filter({ hasText: "Answer number 1 of the scripted model." })).toBeVisible();
  await expect(app.locator('[data-testid="message"][data-role="user"] img')).toHaveCount(1);
  expect(model.lastRequest).toContain("What is in the picture?");
  expect(model.lastRequest).toContain("data:image/png;base64,");
});

piTest("pi with a model of those it offers", async ({ app, hub }) => {
  await openForm(app);
  await app.getByRole("radio", { name: /^pi/ }).check({ force: true });
  await app.getByRole("combobox", { name: "Directory" }).fill(hub.project);
  await app.getByRole("combobox", { name: "Model optional" }).fill("scripted/scripted");
  await app.getByLabel("Thinking").selectOption("low");
  await app.getByLabel("First prompt").fill("Say something");
  await app.getByRole("button", { name: "Start session" }).click();
  await expect(app.getByTestId("message").filter({ hasText: "Answer number 1 of the scripted model." })).toBeVisible();
  const [session] = await sessions(hub);
  expect(session?.model).toContain("scripted");

  await app.goto(`${hub.url}/new`);
  await expect(app.getByRole("radio", { name: /^pi/ })).toBeChecked();
  await expect(app.getByRole("combobox", { name: "Model optional" })).toHaveValue("scripted/scripted");
  await expect(app.locator('datalist option[value="scripted/scripted"]')).toBeAttached();
  const levels = app.getByLabel("Thinking").getByRole("option");
  await expect(levels).toHaveText(["Default", "off", "minimal", "low", "medium", "high"]);
  await app.getByRole("combobox", { name: "Model optional" }).fill("scripted/understudy");
  await expect(levels).toHaveText(["Default", "off"]);
});

test("a first prompt that is not sent yet stays, through other pages and a reload @both", async ({ app, hub }) => {
  await openForm(app);
  const prompt = app.getByLabel("First prompt");
  const demo = app.getByRole("radio", { name: /^demo/ });
  await demo.check({ force: true });
  await prompt.fill("A long thought that took an hour");
  await app.goBack();
  await expect(app.getByRole("heading", { name: "Fleet" })).toBeVisible();
  await app.goForward();
  await demo.check({ force: true });
  await expect(prompt).toHaveValue("A long thought that took an hour");
  await app.reload();
  await demo.check({ force: true });
  await expect(prompt).toHaveValue("A long thought that took an hour");
  await app.getByRole("combobox", { name: "Directory" }).fill(hub.project);
  await app.getByRole("button", { name: "Start session" }).click();
  await expect(app.getByTestId("message").filter({ hasText: "A long thought" })).toHaveCount(1);
  await app.goto(`${hub.url}/new`);
  await expect(prompt).toHaveValue("");
});

test("what cannot be started says why, and nothing typed is lost", async ({ app, hub }) => {
  await openForm(app);
  await app.getByRole("radio", { name: /^demo/ }).check({ force: true });
  await app.getByRole("combobox", { name: "Directory" }).fill("/no/such/place");
  await app.getByLabel("First prompt").fill("Do not lose this");
  await app.getByRole("button", { name: "Start session" }).click();
  await expect(app.getByRole("alert")).toContainText("no directory /no/such/place");
  await expect(app.getByLabel("First prompt")).toHaveValue("Do not lose this");
  expect(await sessions(hub)).toHaveLength(0);
  await app.getByRole("combobox", { name: "Directory" }).fill(hub.project);
  await app.getByRole("button", { name: "Start session" }).click();
  await expect(app.getByTestId("message").filter({ hasText: "Do not lose this" })).toHaveCount(1);
});

test("another runner, and only the harnesses it has", async ({ app, hub }) => {
  const runner = new Runner(hub, "desk");
  try {
    await runner.join();
    mkdirSync(join(runner.project, "far"));
    await openForm(app);
    await app.getByLabel("Runner").selectOption({ value: "desk" });
    await expect(app.getByRole("radio", { name: /^demo/ })).toBeAttached();
    await expect(app.getByRole("radio", { name: /^pi/ })).toHaveCount(0);
    await app.getByRole("radio", { name: /^demo/ }).check({ force: true });
    await app.getByRole("combobox", { name: "Directory" }).fill(`${runner.project}/f`);
    await app.getByRole("option", { name: /far$/ }).click();
    await app.getByRole("button", { name: "Start session" }).click();
    await expect(app.getByTestId("session-header")).toContainText("demo");
    const [session] = await sessions(hub);
    expect(session).toMatchObject({ runner_id: "desk", cwd: join(runner.project, "far") });
    await app.goto(`${hub.url}/new`);
    await expect(app.getByLabel("Runner")).toHaveValue("desk");
  } finally {
    await runner.end();
  }
});

async function openForm(page: Page): Promise<void> {
  await page.getByRole("link", { name: /^New/ }).first().click();
  await expect(page.getByRole("heading", { name: "New session" })).toBeVisible();
}

interface Started {
  session_id: string;
  runner_id: string;
  harness: string;
  title?: string;
  cwd?: string;
  branch?: string;
  model?: string;
}

async function sessions(hub: Hub): Promise<Started[]> {
  return (await hub.command<{ sessions: Started[] }>("list_sessions")).sessions;
}

function git(directory: string, ...words: string[]): string {
  return execFileSync("git", words, { cwd: directory, encoding: "utf8" }).trim();
}

function repository(directory: string): void {
  git(directory, "init", "--quiet", "--initial-branch", "trunk");
  writeFileSync(join(directory, "ship.txt"), "a ship\n");
  git(directory, "add", ".");
  git(directory, "-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "--quiet", "--message", "A ship");
}
