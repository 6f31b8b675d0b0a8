/** A machine that takes its time, or is away: what changes meanwhile neither gets lost nor stops the page. */
import { execFileSync } from "node:child_process";
import { appendFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { holdAnswers } from "./support/answers.ts";
import { event } from "./support/pi.ts";
import { expect, test } from "./support/test.ts";

test("a list of changes that is read again while its lines are on their way shows them", async ({ app, hub }) => {
  execFileSync("git", ["init", "--quiet", hub.project]);
  writeFileSync(join(hub.project, "code.ts"), "const staged = 1;\n");
  execFileSync("git", ["add", "code.ts"], { cwd: hub.project });
  const linesCame = event();
  let isLost = false;
  await holdAnswers(app, ({ cmd, path }, pass) => {
    if (cmd !== "git.diff") return pass();
    // What git says of all files waits until the lines of one were asked for, and the first answer to that is lost.
    if (path === undefined) return void linesCame.happened.then(pass);
    linesCame.happen();
    if (isLost) pass();
    isLost = true;
  });
  await app.goto(`${hub.url}/s/${await hub.demo()}/changes`);
  await linesCame.happened;
  const lines = app.getByTestId("file-change");
  await expect(lines).toContainText("Reading…");
  await app.getByRole("button", { name: "Refresh" }).click();
  await expect(lines).toContainText("added: const staged = 1;");
});

test("a file in conflict has its lines, whichever answer of git comes last", async ({ app, hub }) => {
  const git = (...words: string[]) =>
    execFileSync("git", ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", ...words], { cwd: hub.project, env: hub.environment, stdio: "pipe" });
  const commit = (text: string) => {
    writeFileSync(join(hub.project, "code.ts"), text);
    git("add", "code.ts");
    git("commit", "--message", "A commit");
  };
  git("init", "--initial-branch", "main");
  commit("const first = 1;\n");
  git("checkout", "-b", "other");
  commit("const other = 1;\n");
  git("checkout", "main");
  commit("const mine = 1;\n");
  expect(() => git("merge", "other")).toThrow();
  writeFileSync(join(hub.project, "fresh.txt"), "new\n");
  const allCame = event();
  await holdAnswers(app, ({ cmd, path }, pass) => {
    if (cmd === "git.diff" && path === "code.ts") return void allCame.happened.then(pass);
    pass();
    if (cmd === "git.diff" && path === undefined) allCame.happen();
  });
  await app.goto(`${hub.url}/s/${await hub.demo()}/changes`);
  await expect(app.getByTestId("file-change").filter({ hasText: "code.ts" })).toContainText("added: <<<<<<< HEAD");
});

test("a large file that changes while one begins to edit it is read to its end", async ({ app, hub }) => {
  const file = join(hub.project, "large.txt");
  writeFileSync(file, "a line of the file\n".repeat(60_000));
  const [isAsked, isEnough] = [event(), event()];
  let isChanged = false;
  await holdAnswers(app, ({ cmd, path }, pass) => {
    if (!isChanged || cmd !== "fs.stat" || path !== "large.txt") return pass();
    isAsked.happen();
    void isEnough.happened.then(pass);
  });
  await app.goto(`${hub.url}/s/${await hub.demo()}/files/large.txt`);
  await expect(app.getByRole("button", { name: "Show more" })).toBeVisible();
  isChanged = true;
  appendFileSync(file, "the very last line\n");
  await isAsked.happened;
  await app.getByRole("button", { name: "Edit", exact: true }).click();
  isEnough.happen();
  await expect(app.getByRole("textbox", { name: /large\.txt/ })).toHaveValue(/the very last line\n$/);
});

test("a file that changed while the hub was away is shown as it is when it is back", async ({ app, hub }) => {
  const file = join(hub.project, "log.txt");
  writeFileSync(file, "as it was\n");
  await app.goto(`${hub.url}/s/${await hub.demo()}/files/log.txt`);
  await expect(app.getByTestId("file-text")).toContainText("as it was");
  await hub.kill();
  await expect(app.getByTestId("connection")).toBeVisible();
  writeFileSync(file, "as it is now\n");
  await hub.start();
  await expect(app.getByTestId("file-text")).toContainText("as it is now", { timeout: 30_000 });
});

test("an address that cannot be read leads to no page, and breaks nothing", async ({ app, hub }) => {
  await app.goto(`${hub.url}/s/%E0%A4%A`);
  await expect(app.getByText(/no such page|not there|gone|does not exist|No such/i).first()).toBeVisible();
  await app.getByRole("link", { name: "Fleet" }).first().click();
  await expect(app.getByRole("heading", { name: "Fleet" })).toBeVisible();
});
