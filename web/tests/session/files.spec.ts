/** The files of a session's directory: looked at, searched, edited with a guard, moved about, up and down. */
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { expect, test, type Hub, type Page } from "../support/test.ts";
import { somebody } from "../support/people.ts";

/** A picture of three by two pixels. */
const PICTURE = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAD0lEQVR4nGP4z8AAQSAKABvcA/3TQDyUAAAAAElFTkSuQmCC",
  "base64",
);

test("the tree is walked and every kind of file is shown @both", async ({ app, hub }) => {
  project(hub);
  const session = await openFiles(app, hub);
  await entry(app, "src").click();
  await entry(app, "main.ts").click();
  await expect(fileText(app)).toContainText("export const answer = 42;");
  await expect(app).toHaveURL(new RegExp(`/s/${session}/files/src/main.ts$`));
  await back(app);
  await entry(app, "README.md").click();
  await expect(fileText(app)).toContainText("# The project");
  await app.getByRole("button", { name: "Preview" }).click();
  await expect(app.getByRole("heading", { name: "The project" })).toBeVisible();
  await back(app);
  await entry(app, "picture.png").click();
  await expect(app.getByRole("img", { name: "picture.png" })).toBeVisible();
  await expect(app.getByText("3 × 2")).toBeVisible();
  await back(app);
  await entry(app, "program.bin").click();
  await expect(app.getByText("This file is not text")).toBeVisible();
  await back(app);
  await entry(app, "empty.txt").click();
  await expect(app.getByText("This file is empty")).toBeVisible();
  await back(app);
  await expect(entry(app, ".hidden")).toHaveCount(0);
  await app.getByRole("button", { name: "More for files" }).click();
  await app.getByRole("menuitemcheckbox", { name: "Show hidden files" }).click();
  await expect(entry(app, ".hidden")).toBeVisible();
});

test("the tree obeys the keyboard", async ({ app, hub }) => {
  project(hub);
  await openFiles(app, hub);
  await entry(app, "src").focus();
  await app.keyboard.press("ArrowRight");
  await expect(entry(app, "src")).toHaveAttribute("aria-expanded", "true");
  await expect(entry(app, "main.ts")).toBeVisible();
  await app.keyboard.press("ArrowDown");
  await app.keyboard.press("ArrowDown");
  await expect(entry(app, "main.ts")).toBeFocused();
  await app.keyboard.press("Enter");
  await expect(fileText(app)).toContainText("answer");
  await entry(app, "main.ts").focus();
  await app.keyboard.press("ArrowLeft");
  await expect(entry(app, "src")).toBeFocused();
  await app.keyboard.press("ArrowLeft");
  await expect(entry(app, "main.ts")).toHaveCount(0);
  await app.keyboard.type("rea");
  await expect(entry(app, "README.md")).toBeFocused();
});

test("a huge file opens at once and is read on page by page", async ({ app, hub }) => {
  const lines = Array.from({ length: 150_000 }, (_, index) => `line ${index + 1} of many`);
  writeFileSync(join(hub.project, "huge.log"), lines.join("\n"));
  await openFiles(app, hub, "huge.log");
  await expect(fileText(app).locator("pre").first()).toContainText("line 1 of many");
  await expect(app.getByRole("button", { name: "Edit" })).toBeDisabled();
  const footer = app.getByRole("region", { name: "huge.log", exact: true }).locator("footer");
  await expect(footer).toContainText(/^1(\.0)? MB of .* are shown/);
  await footer.getByRole("button", { name: "Show more" }).click();
  await expect(footer).toContainText(/^2(\.[01])? MB of .* are shown/);
});

test("what changes on the machine shows by itself", async ({ app, hub }) => {
  project(hub);
  await openFiles(app, hub, "README.md");
  await expect(fileText(app)).toContainText("# The project");
  await expect(entry(app, "README.md")).toHaveAttribute("aria-selected", "true");
  await expect(async () => {
    // The watch may not have begun when the page is there.
    writeFileSync(join(hub.project, "by-the-agent.txt"), "new");
    await expect(entry(app, "by-the-agent.txt")).toBeVisible({ timeout: 1000 });
  }).toPass();
  writeFileSync(join(hub.project, "README.md"), "# Written by the agent\n");
  await expect(fileText(app)).toContainText("# Written by the agent");
});

test("a file is edited and saved, and nothing typed is lost @both", async ({ app, hub }) => {
  project(hub);
  await openFiles(app, hub, "src/main.ts");
  await app.getByRole("button", { name: "Edit" }).click();
  const editor = app.getByRole("textbox", { name: "Text of main.ts" });
  await editor.fill("export const answer = 43;\n");
  await expect(app.getByRole("region", { name: "src/main.ts" }).getByText("unsaved", { exact: true })).toBeVisible();
  await back(app);
  await entry(app, "README.md").click();
  await expect(fileText(app)).toContainText("# The project");
  await back(app);
  await app.getByRole("link", { name: "main.ts" }).click();
  await expect(editor).toHaveValue("export const answer = 43;\n");
  await app.getByRole("button", { name: "Save" }).click();
  await expect(app.getByText("main.ts is saved.")).toBeVisible();
  expect(readFileSync(join(hub.project, "src/main.ts"), "utf8")).toBe("export const answer = 43;\n");

  await editor.fill("export const answer = 44;\n");
  await editor.press("Control+s");
  await expect.poll(() => readFileSync(join(hub.project, "src/main.ts"), "utf8")).toBe("export const answer = 44;\n");
  await editor.fill("nonsense");
  await app.getByRole("button", { name: "Discard" }).click();
  await app.getByRole("dialog", { name: "Discard your changes?" }).getByRole("button", { name: "Discard changes" }).click();
  await expect(fileText(app)).toContainText("answer = 44");
});

test("the browser asks before a page with something unsaved is left", async ({ app, hub }) => {
  project(hub);
  await openFiles(app, hub, "README.md");
  await app.getByRole("button", { name: "Edit" }).click();
  await app.getByRole("textbox", { name: "Text of README.md" }).pressSequentially("typed ");
  const asked = app.waitForEvent("dialog");
  await app.close({ runBeforeUnload: true });
  const dialog = await asked;
  expect(dialog.type()).toBe("beforeunload");
  await dialog.dismiss();
  await expect(app.getByRole("textbox", { name: "Text of README.md" })).toHaveValue(/^typed /);
});

test("what the agent wrote meanwhile is not overwritten unasked", async ({ app, hub }) => {
  project(hub);
  const place = join(hub.project, "README.md");
  await openFiles(app, hub, "README.md");
  await app.getByRole("button", { name: "Edit" }).click();
  const editor = app.getByRole("textbox", { name: "Text of README.md" });
  await editor.fill("mine\n");
  writeFileSync(place, "theirs\n");
  await expect(app.getByText("This file was changed on the machine while you edit it.")).toBeVisible();
  await app.getByRole("button", { name: "Save" }).click();
  const conflict = app.getByRole("dialog", { name: "README.md has changed" });
  await expect(conflict).toContainText("theirs");
  await expect(conflict).toContainText("mine");
  expect(readFileSync(place, "utf8")).toBe("theirs\n");
  await conflict.getByRole("button", { name: "Keep editing" }).click();
  await expect(editor).toHaveValue("mine\n");
  await app.getByRole("button", { name: "Compare" }).click();
  await conflict.getByRole("button", { name: "Overwrite with my text" }).click();
  await expect.poll(() => readFileSync(place, "utf8")).toBe("mine\n");
  await expect(conflict).toHaveCount(0);

  await editor.fill("mine again\n");
  writeFileSync(place, "theirs again\n");
  await app.getByRole("button", { name: "Save" }).click();
  await conflict.getByRole("button", { name: "Reload and discard my text" }).click();
  await expect(editor).toHaveValue("theirs again\n");
  expect(readFileSync(place, "utf8")).toBe("theirs again\n");
});

test("what was typed earlier is not saved over what came while another page was looked at", async ({ app, hub }) => {
  project(hub);
  const place = join(hub.project, "README.md");
  await openFiles(app, hub, "README.md");
  await app.getByRole("button", { name: "Edit" }).click();
  const editor = app.getByRole("textbox", { name: "Text of README.md" });
  await editor.fill("mine\n");
  await app.getByRole("link", { name: "Changes" }).click();
  await expect(editor).toHaveCount(0);
  writeFileSync(place, "theirs\n");
  await app.getByRole("link", { name: "Files" }).click();
  await app.getByRole("link", { name: "README.md" }).click();
  await expect(editor).toHaveValue("mine\n");
  await expect(app.getByText("This file was changed on the machine while you edit it.")).toBeVisible();
  await app.getByRole("button", { name: "Save" }).click();
  const conflict = app.getByRole("dialog", { name: "README.md has changed" });
  await expect(conflict).toContainText("theirs");
  expect(readFileSync(place, "utf8")).toBe("theirs\n");
  await conflict.getByRole("button", { name: "Keep editing" }).click();

  // Nor is it lost when the file is.
  await app.getByRole("link", { name: "Changes" }).click();
  rmSync(place);
  await app.getByRole("link", { name: "Files" }).click();
  await app.getByRole("link", { name: "README.md" }).click();
  await expect(editor).toHaveValue("mine\n");
  await app.getByRole("button", { name: "Save" }).click();
  await expect(conflict).toContainText("The file is gone");
  await conflict.getByRole("button", { name: "Save anyway" }).click();
  await expect.poll(() => existsSync(place) && readFileSync(place, "utf8")).toBe("mine\n");
});

test("an operator's save waits until the owner approves", async ({ app, hub, browser }) => {
  project(hub);
  const place = join(hub.project, "README.md");
  const session = await openFiles(app, hub);
  const operator = await somebody(browser, hub, "operator");
  await operator.goto(`${hub.url}/s/${session}/files/README.md`);
  await operator.getByRole("button", { name: "Edit" }).click();
  const editor = operator.getByRole("textbox", { name: "Text of README.md" });
  await editor.fill("by the operator\n");
  await operator.getByRole("button", { name: "Save" }).click();
  const card = app.getByTestId("question-card");
  await expect(card).toContainText("README.md");
  await expect(card).toContainText("by the operator");
  expect(readFileSync(place, "utf8")).not.toBe("by the operator\n");
  await card.getByRole("button", { name: "Approve" }).click();
  await expect(operator.getByText("README.md is saved.")).toBeVisible();
  expect(readFileSync(place, "utf8")).toBe("by the operator\n");

  await editor.fill("something bad\n");
  await operator.getByRole("button", { name: "Save" }).click();
  await card.getByRole("button", { name: "Deny…" }).click();
  await card.getByLabel("Reason for denying").fill("please do not");
  await card.getByRole("button", { name: "Deny", exact: true }).click();
  await expect(operator.getByText(/please do not/).first()).toBeVisible();
  await expect(editor).toHaveValue("something bad\n");
  expect(readFileSync(place, "utf8")).toBe("by the operator\n");
});

test("entries are made, renamed, moved, copied and deleted @both", async ({ app, hub }) => {
  project(hub);
  await openFiles(app, hub);
  const at = (path: string): string => join(hub.project, path);
  await app.getByRole("button", { name: "New folder" }).click();
  await answer(app, "New folder", "notes", "Create");
  await expect(entry(app, "notes")).toBeVisible();
  await choose(app, "notes", "New file");
  await answer(app, "New file", "today.txt", "Create");
  await expect(app.getByText("This file is empty")).toBeVisible();
  await back(app);
  await choose(app, "today.txt", "Rename");
  await answer(app, "Rename today.txt", "tomorrow.txt", "Rename");
  await expect(entry(app, "tomorrow.txt")).toBeVisible();
  await expect(entry(app, "today.txt")).toHaveCount(0);
  await choose(app, "tomorrow.txt", "Move");
  await answer(app, "Move tomorrow.txt", "later/new/plan.txt", "Move");
  await expect.poll(() => existsSync(at("later/new/plan.txt"))).toBe(true);
  expect(existsSync(at("notes/tomorrow.txt"))).toBe(false);
  await expect(entry(app, "later")).toBeVisible();
  await choose(app, "README.md", "Copy");
  await answer(app, "Copy README.md", undefined, "Copy");
  await expect(entry(app, "README-copy.md")).toBeVisible();
  expect(readFileSync(at("README-copy.md"), "utf8")).toBe(readFileSync(at("README.md"), "utf8"));
  await choose(app, "src", "Copy");
  await answer(app, "Copy src", "src2", "Copy");
  await expect.poll(() => existsSync(at("src2/main.ts"))).toBe(true);
  await choose(app, "src2", "Delete");
  await app.getByRole("dialog", { name: "Delete src2?" }).getByRole("button", { name: "Cancel" }).click();
  expect(existsSync(at("src2/main.ts"))).toBe(true);
  await choose(app, "src2", "Delete");
  await app.getByRole("dialog", { name: "Delete src2?" }).getByRole("button", { name: "Delete" }).click();
  await expect(entry(app, "src2")).toHaveCount(0);
  expect(existsSync(at("src2"))).toBe(false);
  // What is in the way stays.
  await choose(app, "README.md", "Move");
  await answer(app, "Move README.md", "README-copy.md", "Move");
  await expect(app.getByText(/It was not moved/)).toBeVisible();
  expect(existsSync(at("README.md"))).toBe(true);
});

test("the file that is open follows its new name", async ({ app, hub }) => {
  project(hub);
  const session = await openFiles(app, hub, "src/main.ts");
  await app.getByRole("button", { name: "Edit" }).click();
  await app.getByRole("textbox", { name: "Text of main.ts" }).fill("not saved yet\n");
  await app.getByRole("region", { name: "src/main.ts" }).getByRole("button", { name: "Actions for main.ts" }).click();
  await app.getByRole("menuitem", { name: "Rename" }).click();
  await answer(app, "Rename main.ts", "first.ts", "Rename");
  await expect(app).toHaveURL(new RegExp(`/s/${session}/files/src/first.ts$`));
  await expect(app.getByRole("textbox", { name: "Text of first.ts" })).toHaveValue("not saved yet\n");
  await app.getByRole("button", { name: "Save" }).click();
  await expect.poll(() => readFileSync(join(hub.project, "src/first.ts"), "utf8")).toBe("not saved yet\n");
  expect(existsSync(join(hub.project, "src/main.ts"))).toBe(false);
});

test("files go up, with progress, and replace others only when asked", async ({ app, hub }) => {
  project(hub);
  await openFiles(app, hub);
  const browser = await app.context().newCDPSession(app);
  await browser.send("Network.enable");
  const slow = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput: 400_000 };
  await browser.send("Network.emulateNetworkConditions", slow);
  const large = Buffer.alloc(2_000_000, "a");
  await pick(app, [{ name: "large.bin", mimeType: "application/octet-stream", buffer: large }]);
  const transfer = app.getByTestId("transfer").filter({ hasText: "large.bin" });
  await expect(transfer.getByRole("progressbar")).toBeVisible();
  await expect(transfer).toContainText(/[1-9]\d? % of/);
  await transfer.getByRole("button", { name: "Cancel upload of large.bin" }).click();
  await expect(transfer).toContainText("cancelled");
  await browser.send("Network.emulateNetworkConditions", { ...slow, uploadThroughput: -1 });
  await pick(app, [{ name: "large.bin", mimeType: "application/octet-stream", buffer: large }]);
  await expect(transfer.filter({ hasText: "uploaded" })).toBeVisible();
  expect(readFileSync(join(hub.project, "large.bin")).equals(large)).toBe(true);
  await expect(entry(app, "large.bin")).toBeVisible();

  await pick(app, [{ name: "README.md", mimeType: "text/plain", buffer: Buffer.from("uploaded") }]);
  const question = app.getByRole("dialog", { name: "Replace README.md?" });
  await question.getByRole("button", { name: "Cancel" }).click();
  expect(readFileSync(join(hub.project, "README.md"), "utf8")).toContain("# The project");
  await pick(app, [{ name: "README.md", mimeType: "text/plain", buffer: Buffer.from("uploaded") }]);
  await question.getByRole("button", { name: "Replace" }).click();
  await expect.poll(() => readFileSync(join(hub.project, "README.md"), "utf8")).toBe("uploaded");
});

test("files and whole folders are dropped into the tree", async ({ app, hub }) => {
  project(hub);
  await openFiles(app, hub);
  const desk = join(hub.directory, "desk");
  mkdirSync(join(desk, "folder/inner"), { recursive: true });
  writeFileSync(join(desk, "folder/outer.txt"), "outer");
  writeFileSync(join(desk, "folder/inner/deep.txt"), "deep");
  writeFileSync(join(desk, "single.txt"), "single");
  await drop(app, "src", [join(desk, "folder"), join(desk, "single.txt")]);
  await expect(app.getByTestId("transfer").filter({ hasText: "uploaded" })).toHaveCount(3);
  expect(readFileSync(join(hub.project, "src/folder/inner/deep.txt"), "utf8")).toBe("deep");
  expect(readFileSync(join(hub.project, "src/folder/outer.txt"), "utf8")).toBe("outer");
  expect(readFileSync(join(hub.project, "src/single.txt"), "utf8")).toBe("single");
});

test("files come down, with progress", async ({ app, hub }) => {
  project(hub);
  const large = Buffer.alloc(3_000_000, "b");
  writeFileSync(join(hub.project, "down.bin"), large);
  await openFiles(app, hub);
  const browser = await app.context().newCDPSession(app);
  await browser.send("Network.enable");
  await browser.send("Network.emulateNetworkConditions", { offline: false, latency: 0, downloadThroughput: 1_500_000, uploadThroughput: -1 });
  const saved = app.waitForEvent("download");
  await choose(app, "down.bin", "Download");
  const transfer = app.getByTestId("transfer").filter({ hasText: "down.bin" });
  await expect(transfer.getByRole("progressbar")).toBeVisible();
  await expect(transfer).toContainText(/[1-9]\d? % of/);
  await expect(transfer).toContainText("downloaded");
  const download = await saved;
  expect(download.suggestedFilename()).toBe("down.bin");
  expect(readFileSync(await download.path()).equals(large)).toBe(true);
});

test("a text is found in all files, and the hit leads to its line @both", async ({ app, hub }) => {
  project(hub);
  writeFileSync(join(hub.project, "src/long.txt"), `${"filler\n".repeat(300)}the Needle is here\n`);
  await openFiles(app, hub);
  await app.getByRole("button", { name: "Search in files" }).click();
  const field = app.getByRole("searchbox", { name: "Search in files" });
  await field.fill("needle");
  await expect(app.getByTestId("search-hit")).toHaveCount(1);
  await expect(app.getByTestId("search-hit").locator("mark")).toHaveText("Needle");
  await app.getByRole("button", { name: "Match capitals" }).click();
  await expect(app.getByText(/Nothing found in/)).toBeVisible();
  await app.getByRole("button", { name: "Match capitals" }).click();
  await app.getByRole("button", { name: "Regular expression" }).click();
  await field.fill("ne+dle is");
  await expect(app.getByTestId("search-hit")).toHaveCount(1);
  await app.getByLabel("Only in files like").fill("*.md");
  await expect(app.getByText(/Nothing found in/)).toBeVisible();
  await app.getByLabel("Only in files like").fill("*.txt");
  await app.getByTestId("search-hit").click();
  await expect(app).toHaveURL(/src\/long\.txt\?line=301$/);
  await expect.poll(() => fileText(app).evaluate((region) => region.scrollTop)).toBeGreaterThan(1000);
});

test("who may only look reads and downloads, and changes nothing", async ({ hub, browser }) => {
  project(hub);
  const session = await hub.demo();
  const viewer = await somebody(browser, hub, "viewer");
  await viewer.goto(`${hub.url}/s/${session}/files/README.md`);
  await expect(fileText(viewer)).toContainText("# The project");
  for (const name of ["Edit", "New file", "New folder", "Upload files"]) {
    await expect(viewer.getByRole("button", { name, exact: true })).toHaveCount(0);
  }
  await entry(viewer, "README.md").focus();
  await viewer.keyboard.press("Delete");
  await viewer.keyboard.press("F2");
  await expect(viewer.getByRole("dialog")).toHaveCount(0);
  await entry(viewer, "README.md").focus();
  await viewer.getByRole("tree").getByRole("button", { name: "Actions for README.md" }).click();
  await expect(viewer.getByRole("menuitem")).toHaveText(["Download", "Copy path"]);
  const saved = viewer.waitForEvent("download");
  await viewer.getByRole("menuitem", { name: "Download" }).click();
  expect((await saved).suggestedFilename()).toBe("README.md");
});

/** Files of every kind. */
function project(hub: Hub): void {
  const write = (path: string, content: string | Buffer): void => writeFileSync(join(hub.project, path), content);
  mkdirSync(join(hub.project, "src/deep"), { recursive: true });
  write("README.md", "# The project\n\nIt has *words*.\n");
  write("src/main.ts", "export const answer = 42;\n");
  write("src/deep/below.txt", "below\n");
  write("picture.png", PICTURE);
  write("program.bin", Buffer.from([0x7f, 0x45, 0x4c, 0x46, 0, 0, 0, 1, 2, 3, 0xff, 0xfe]));
  write("empty.txt", "");
  write(".hidden", "hidden\n");
}

async function openFiles(page: Page, hub: Hub, path?: string): Promise<string> {
  const session = await hub.demo();
  await page.goto(`${hub.url}/s/${session}/files${path === undefined ? "" : `/${path}`}`);
  await expect(path === undefined ? page.getByRole("treeitem").first() : page.getByRole("region", { name: path, exact: true })).toBeVisible();
  return session;
}

function entry(page: Page, name: string) {
  return page.getByRole("treeitem", { name, exact: true });
}

function fileText(page: Page) {
  return page.getByTestId("file-text");
}

/** On a phone the tree and the file are two screens. */
async function back(page: Page): Promise<void> {
  const button = page.getByRole("button", { name: "Back to the files" });
  if (await button.isVisible()) await button.click();
}

/** Takes an action from the menu of an entry. */
async function choose(page: Page, name: string, action: string): Promise<void> {
  await entry(page, name).focus();
  await page.getByRole("tree").getByRole("button", { name: `Actions for ${name}`, exact: true }).click();
  await page.getByRole("menuitem", { name: new RegExp(`^${action}( F2)?$`) }).click();
}

async function answer(page: Page, title: string, text: string | undefined, action: string): Promise<void> {
  const dialog = page.getByRole("dialog", { name: title });
  if (text !== undefined) await dialog.getByRole("textbox").fill(text);
  await dialog.getByRole("button", { name: action }).click();
  await expect(dialog).toHaveCount(0);
}

async function pick(page: Page, files: { name: string; mimeType: string; buffer: Buffer }[]): Promise<void> {
  const chooser = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Upload files" }).click();
  await (await chooser).setFiles(files);
}

/** Drops files and folders of this machine onto an entry, as from a file manager. */
async function drop(page: Page, name: string, files: string[]): Promise<void> {
  const box = await entry(page, name).boundingBox();
  if (!box) throw new Error(`${name} is not on the screen`);
  const browser = await page.context().newCDPSession(page);
  const place = { x: box.x + box.width / 2, y: box.y + box.height / 2, data: { items: [], files, dragOperationsMask: 1 } };
  for (const type of ["dragEnter", "dragOver", "drop"] as const) await browser.send("Input.dispatchDragEvent", { type, ...place });
}
