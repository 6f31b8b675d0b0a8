/** Every agent of every machine on one screen: who needs you, who works, what they said, what they cost. */
import { execFileSync } from "node:child_process";

import { PricedModel } from "./support/priced.ts";
import { test as piTest } from "./support/pi.ts";
import { Runner } from "./support/runner.ts";
import { talk } from "./support/prompting.ts";
import { descendants, signalAll } from "./support/processes.ts";
import { terminal, typeLine } from "./support/terminals.ts";
import { expect, signIn, test, type Page } from "./support/test.ts";

piTest("sessions stand in their groups, say what they do, and move by themselves @both", async ({ app, hub, model, isMobile }) => {
  execFileSync("git", ["init", "--quiet", "--initial-branch", "trunk", hub.project]);
  const asking = await hub.demo("Paint the ship");
  await talk(hub, asking, "/question");
  await talk(hub, await hub.demo("Small talk"), "/text");
  const closed = await hub.demo("Long ago");
  await hub.command("session.close", { session_id: closed });
  const enough = new AbortController();
  model.script.push({ wordsUntil: enough.signal });
  const working = await hub.pi();
  await hub.command("set_session_name", { session_id: working, name: "Write a book" });
  await hub.command("prompt", { session_id: working, message: "Write" });

  await expect(row(app, "needs", "Paint the ship")).toContainText("asks you");
  await expect(row(app, "needs", "Paint the ship")).toContainText("Which colour should the ship have?");
  await expect(row(app, "working", "Write a book")).toContainText(/writing\s*[1-9]\d* s/);
  await expect(row(app, "working", "Write a book")).toContainText("pi on");
  const idle = row(app, "idle", "Small talk");
  await expect(idle).toContainText("as a model would give it, and ends here.");
  await expect(idle).toContainText(/demo on \S+/);
  await expect(idle).toContainText("/project");
  if (!isMobile) await expect(idle.getByTitle("Branch trunk")).toBeVisible();
  await expect(idle).toContainText("46 tokens");
  await expect(row(app, "done", "Long ago")).toContainText("closed");
  await expect(app).toHaveTitle(/^\(1\) Fleet/);

  enough.abort();
  // How it ended, not how it began.
  await expect(row(app, "idle", "Write a book")).toContainText(/(…|0 word1 .*)word\d+ word\d+/);
  await row(app, "needs", "Paint the ship").getByRole("link").click();
  await app.getByTestId("question-card").getByRole("button", { name: "blue" }).click();
  await app.goBack();
  await expect(row(app, "idle", "Paint the ship")).toBeVisible();
  await expect(app.getByTestId("group-needs")).toHaveCount(0);
  await expect(app).toHaveTitle(/^Fleet/);
});

test("sessions are searched, filtered and sorted, and the order is remembered @both", async ({ app, hub, isMobile }) => {
  await talk(hub, await hub.demo("Bravo"), "/thinking");
  await hub.command("session.create", { config: { harness: "pty", cwd: hub.project, title: "Alpha", run: { cmd: "sleep 1000" } } });
  await talk(hub, await hub.demo("Charlie"), "/text");
  await expect(rows(app)).toHaveCount(3);

  const search = app.getByRole("searchbox", { name: "Search sessions" });
  await search.fill("short answer");
  await expect(titles(app)).toHaveText(["Charlie"]);
  await search.fill("nothing like it");
  await expect(app.getByText("No session matches")).toBeVisible();
  await app.getByRole("button", { name: "Clear the search" }).click();
  await expect(rows(app)).toHaveCount(3);

  if (isMobile) await app.getByRole("button", { name: "Filter and sort" }).click();
  await app.getByLabel("Harness").selectOption("demo");
  await expect(titles(app)).toHaveText(["Charlie", "Bravo"]);
  await app.getByLabel("Sort by").selectOption("Title");
  await expect(titles(app)).toHaveText(["Bravo", "Charlie"]);
  await app.reload();
  await expect(rows(app)).toHaveCount(3);
  await expect(app.getByTestId("group-idle").getByTestId("session-row").locator("a.title")).toHaveText(["Bravo", "Charlie"]);

  await app.getByRole("navigation", { name: "Groups" }).getByRole("link", { name: /Working 1/ }).click();
  await expect(titles(app)).toHaveText(["Alpha"]);
  await app.getByRole("navigation", { name: "Groups" }).getByRole("link", { name: /Done 0/ }).click();
  await expect(app.getByText("Nothing here: done")).toBeVisible();
  await app.getByRole("button", { name: "Show all" }).click();
  await expect(rows(app)).toHaveCount(3);
});

test("runners show their health, load and version; one is chosen, one goes away and comes back", async ({ app, hub }) => {
  test.slow();
  const runner = new Runner(hub, "desk");
  try {
    await hub.demo("Here");
    await runner.join();
    const config = { harness: "demo", cwd: runner.project, title: "There" };
    await hub.command("session.create", { runner_id: "desk", config });
    await expect(rows(app)).toHaveCount(2);
    const cards = app.getByTestId("runner-card");
    await expect(cards).toHaveCount(2);
    const desk = app.locator('[data-testid="runner-card"][title^="desk:"]');
    await expect(desk).toContainText(/\d+\.\d+\.\d+/);
    // Runners say how many agents they have every ten seconds, and the page asks every five.
    await expect(desk).toContainText(/1 session · 1 of \d+ agents/, { timeout: 40_000 });
    await expect(desk.getByRole("meter", { name: "load" })).toBeVisible();
    await expect(desk.getByRole("meter", { name: "memory" })).toBeVisible();
    await expect(desk).toHaveAttribute("title", /harnesses: .*demo/);

    await desk.click();
    await expect(titles(app)).toHaveText(["There"]);
    await desk.click();
    await expect(rows(app)).toHaveCount(2);
    await app.getByLabel("Runner", { exact: true }).selectOption({ value: "desk" });
    await expect(titles(app)).toHaveText(["There"]);
    await app.getByLabel("Runner", { exact: true }).selectOption("All runners");

    await runner.kill();
    await expect(desk).toContainText("offline, seen just now");
    await expect(row(app, "idle", "There")).toContainText("runner offline");
    await runner.start();
    await expect(desk).not.toContainText("offline");
    await expect(row(app, "idle", "There")).not.toContainText("runner offline");
  } finally {
    await runner.end();
  }
});

test("a shared terminal is counted and listed nowhere but at its session", async ({ app, hub }) => {
  const session = await hub.demo("Helm");
  await hub.command("session.create", { config: { harness: "pty", cwd: hub.project, title: "Pump", run: { cmd: "sleep 1000" } } });
  await app.goto(`${hub.url}/s/${session}/terminal`);
  await typeLine(app, "echo sum-$((40 + 2))");
  await expect(terminal(app)).toContainText("sum-42");
  const { sessions } = await hub.command<{ sessions: { harness: string }[] }>("list_sessions");
  expect(sessions.map(({ harness }) => harness).sort()).toEqual(["demo", "pty", "terminal"]);

  await app.getByRole("link", { name: "Fleet" }).first().click();
  await expect(rows(app)).toHaveCount(2);
  await expect(app.getByTestId("runner-card")).toContainText("2 sessions");
  await expect(app.getByLabel("Harness").getByRole("option")).toHaveText(["All harnesses", "demo", "sleep"]);
  await app.getByRole("link", { name: "History" }).first().click();
  await expect(app.getByTestId("past-session")).toHaveCount(2);
  await app.getByRole("button", { name: "Filters" }).click();
  await expect(app.getByLabel("Harness").getByRole("option")).toHaveText(["All harnesses", "demo", "pty"]);
});

test("a session is renamed, closed, opened again and deleted from its row @both", async ({ app, hub }) => {
  await talk(hub, await hub.demo("Old name"), "/text");
  await choose(app, "Old name", "Rename");
  await app.getByRole("dialog").getByLabel("Title").fill("New name");
  await app.getByRole("button", { name: "Rename" }).click();
  await expect(row(app, "idle", "New name")).toBeVisible();
  await choose(app, "New name", "Close");
  await expect(row(app, "done", "New name")).toContainText("closed");
  await choose(app, "New name", "Reopen");
  await expect(row(app, "idle", "New name")).toBeVisible();
  await choose(app, "New name", "Delete…");
  await expect(app.getByRole("dialog")).toContainText("will be deleted for everyone");
  await app.getByRole("button", { name: "Delete session" }).click();
  await expect(rows(app)).toHaveCount(0);
  await expect(app.getByText("Three steps to your first agent")).toBeVisible();
});

test("a session that works is not closed by accident", async ({ app, hub }) => {
  await hub.command("session.create", { config: { harness: "pty", cwd: hub.project, title: "Sleeper", run: { cmd: "sleep 1000" } } });
  await expect(row(app, "working", "Sleeper")).toContainText("running");
  await choose(app, "Sleeper", "Close");
  await expect(app.getByRole("dialog")).toContainText("is still working");
  await app.getByRole("button", { name: "Cancel" }).click();
  await expect(row(app, "working", "Sleeper")).toBeVisible();
  await choose(app, "Sleeper", "Close");
  await app.getByRole("button", { name: "Close session" }).click();
  await expect(row(app, "done", "Sleeper")).toBeVisible();
});

piTest("an agent that dies needs you, says why, and is started again from its row", async ({ app, hub }) => {
  const session = await hub.pi();
  await talk(hub, session, "hello");
  await expect(row(app, "idle", "pi in project")).toBeVisible();
  signalAll(descendants(hub.pid), "SIGKILL");
  await expect(row(app, "needs", "pi in project")).toContainText("failed");
  await expect(row(app, "needs", "pi in project").locator(".words")).toContainText(/signal|killed|exit|died|ended/i);
  await choose(app, "pi in project", "Restart");
  await expect(row(app, "idle", "pi in project")).toBeVisible();
  await expect(app.getByTestId("group-needs")).toHaveCount(0);
});

const pricedTest = test.extend<{ priced: PricedModel }>({
  priced: async ({}, use) => {
    const priced = new PricedModel();
    await use(priced);
    priced.end();
  },
  settings: async ({ priced }, use) => use(await priced.start()),
});

pricedTest("tokens and cost of a session are in its row and in the sum @both", async ({ page, hub }) => {
  const session = await hub.pi();
  await talk(hub, session, "one", "two");
  await signIn(page, hub);
  await expect(rows(page)).toContainText("2.4k tokens");
  await expect(rows(page)).toContainText("$0.40");
  await expect(page.locator("header").getByText("2.4k tokens · $0.40")).toBeVisible();
});

function rows(page: Page) {
  return page.getByTestId("session-row");
}

function titles(page: Page) {
  return rows(page).locator("a.title");
}

function row(page: Page, group: "needs" | "working" | "idle" | "done", title: string) {
  return page.getByTestId(`group-${group}`).getByTestId("session-row").filter({ hasText: title });
}

/** Takes something of the menu of a row. */
async function choose(page: Page, title: string, action: string): Promise<void> {
  await page.getByRole("button", { name: `Actions for ${title}` }).click();
  await page.getByRole("menuitem", { name: action, exact: true }).click();
}
