/** Everything that was said and done is found again, and one gets to the place where it was. */
import { ScriptedModel } from "../../../clients/typescript/test/pi.ts";
import { expect, Hub, signIn, test, watch, type Page } from "../support/test.ts";
import { talk } from "../support/prompting.ts";

test("a search finds words, marks them, and leads to their place @both", async ({ app, hub, isMobile }) => {
  const session = await hub.demo("Painting the ship");
  await talk(hub, session, "the mizzen mast is to be varnished", ...Array.from({ length: 14 }, () => "/thinking"));
  await openHistory(app, isMobile);
  await find(app, "mizzen varnished");
  const hit = app.getByTestId("search-hit");
  await expect(hit).toHaveCount(1);
  await expect(hit.locator("mark")).toHaveText(["mizzen", "varnished"]);
  await expect(app.getByTestId("search-group")).toContainText("Painting the ship");
  await hit.click();
  const message = app.getByTestId("message").filter({ hasText: "mizzen mast" });
  await expect(message).toBeInViewport();
  await expect(app).toHaveURL(new RegExp(`/s/${session}\\?m=0`));
  await app.goBack();
  await expect(app.getByLabel("Search all messages")).toHaveValue("mizzen varnished");
  await expect(hit).toHaveCount(1);
});

test("sessions and machines are called here as they are in the fleet, without tricks", async ({ app, hub }) => {
  const session = await hub.demo("gnp.\u202eelttik");
  await talk(hub, session, "the capstan");
  await talk(hub, await hub.demo(), "no title");
  const names = app.getByTestId("session-row").locator("a.title");
  await expect(names).toHaveCount(2);
  const inFleet = await names.allInnerTexts();
  expect(inFleet).toContain("gnp.‹U+202E›elttik");
  const machine = /demo\s+on\s+(\S+)/.exec(await app.getByTestId("session-row").first().innerText())?.[1] ?? "none";
  await app.goto(`${hub.url}/history`);
  const past = app.getByTestId("past-session");
  await expect(past).toHaveCount(2);
  expect((await past.locator(".title").allInnerTexts()).sort()).toEqual(inFleet.sort());
  await expect(past.first()).toContainText(machine);
  await find(app, "capstan");
  await expect(app.getByTestId("search-group")).toContainText("gnp.‹U+202E›elttik");
  await expect(app.getByTestId("search-group")).toContainText(machine);
});

test("words nobody said are not found, and the beginning of one is enough with a star", async ({ app, hub }) => {
  const session = await hub.demo();
  await talk(hub, session, "migrations of storks");
  await app.goto(`${hub.url}/history`);
  await find(app, "albatross");
  await expect(app.getByText("Nothing found")).toBeVisible();
  await find(app, "migrat*");
  await expect(app.getByTestId("search-hit").locator("mark")).toHaveText(["migrations"]);
  await app.getByLabel("Search all messages").press("Escape");
  await expect(app.getByTestId("past-session")).toHaveCount(1);
});

test("each filter narrows a search", async ({ app, hub }) => {
  const first = await hub.demo("First");
  const second = await hub.demo("Second");
  await talk(hub, first, "an answer about sails", "/tools");
  await talk(hub, second, "an answer about anchors");
  await app.goto(`${hub.url}/history?q=answer`);
  const hits = app.getByTestId("search-hit");
  await expect(hits).toHaveCount(2);
  await app.getByRole("button", { name: "Filters" }).click();

  await app.getByLabel("Said by").selectOption("Agent");
  await expect(app.getByText("Nothing found")).toBeVisible();
  await app.getByLabel("Said by").selectOption("You and others");
  await expect(hits).toHaveCount(2);

  await app.getByLabel("Session", { exact: true }).selectOption("Second");
  await expect(hits).toHaveCount(1);
  await expect(hits).toContainText("anchors");
  await app.getByRole("button", { name: "Clear filters" }).click();
  await expect(hits).toHaveCount(2);

  await app.getByLabel("Harness").selectOption("demo");
  await expect(app.getByRole("button", { name: "Filters (1)" })).toBeVisible();
  await expect(hits).toHaveCount(2);
  const [runner] = (await hub.command<{ runners: { runner_id: string }[] }>("get_runners")).runners;
  await app.getByLabel("Runner").selectOption(runner?.runner_id ?? "");
  await expect(hits).toHaveCount(2);
  await app.goto(`${hub.url}/history?q=answer&runner=elsewhere`);
  await expect(app.getByText("Nothing found")).toBeVisible();
  await app.goto(`${hub.url}/history?q=answer&harness=pi`);
  await expect(app.getByText("Nothing found")).toBeVisible();

  await app.goto(`${hub.url}/history?q=answer&from=${day(0)}&to=${day(0)}`);
  await expect(hits).toHaveCount(2);
  await app.getByLabel("To", { exact: true }).fill("");
  await app.getByLabel("From").fill(day(1));
  await expect(app.getByText("Nothing found")).toBeVisible();
  await app.getByRole("button", { name: "Clear filters" }).click();
  await app.getByLabel("To", { exact: true }).fill(day(-1));
  await expect(app.getByText("Nothing found")).toBeVisible();
});

test("past sessions are listed by day and open", async ({ app, hub }) => {
  const session = await hub.demo("Swabbing the deck");
  await hub.demo("Still going");
  await talk(hub, session, "/text");
  await hub.command("session.close", { session_id: session });
  await app.goto(`${hub.url}/history`);
  const today = app.getByRole("region", { name: "Today" });
  await expect(today.getByTestId("past-session")).toHaveCount(2);
  await expect(today.getByTestId("past-session").filter({ hasText: "Swabbing" })).toContainText("2 messages");
  await app.getByRole("button", { name: "Filters" }).click();
  await app.getByLabel("From").fill(day(1));
  await expect(app.getByText("No session matches these filters.")).toBeVisible();
  await app.getByRole("button", { name: "Clear filters" }).click();
  await today.getByRole("link", { name: /Swabbing/ }).click();
  await expect(app).toHaveURL(`${hub.url}/s/${session}`);
  await expect(app.getByText("This is a short answer.")).toBeVisible();
});

test("a file that pi has left is opened again as a session", async ({ page }) => {
  const model = new ScriptedModel();
  const hub = new Hub(await model.start());
  try {
    await hub.start();
    const problems = watch(page);
    const config = { harness: "pi", cwd: hub.project };
    const { session_id } = await hub.command<{ session_id: string }>("session.create", { config });
    await talk(hub, session_id, "remember the halyard");
    await signIn(page, hub);
    await page.goto(`${hub.url}/history`);
    await page.getByRole("link", { name: "Session files on runners" }).click();
    const file = page.getByTestId("stored-session");
    await expect(file).toHaveCount(1);
    await file.getByRole("link", { name: "Show" }).click();
    await expect(page.getByText("remember the halyard").first()).toBeVisible();

    await hub.command("session.delete", { session_id });
    await page.goto(`${hub.url}/history?view=files`);
    await page.getByLabel("Filter", { exact: true }).fill("no such thing");
    await expect(page.getByText("No session file matches")).toBeVisible();
    await page.getByLabel("Filter", { exact: true }).fill("");
    await file.getByRole("button", { name: "Reopen" }).click();
    await expect(page.getByTestId("message").filter({ hasText: "remember the halyard" })).toBeVisible({ timeout: 30_000 });
    expect(problems).toEqual([]);
  } finally {
    await hub.end();
    model.end();
  }
});

async function openHistory(page: Page, isMobile: boolean): Promise<void> {
  const bar = isMobile ? page.getByRole("navigation", { name: "Pages" }) : page.getByRole("navigation").first();
  await bar.getByRole("link", { name: "History" }).click();
  await expect(page.getByRole("heading", { name: "History" })).toBeVisible();
}

async function find(page: Page, words: string): Promise<void> {
  await page.getByLabel("Search all messages").fill(words);
}

/** A day as the field writes it, so many after today; the browser's clock is UTC here. */
function day(after: number): string {
  return new Date(Date.now() + after * 86_400_000).toISOString().slice(0, 10);
}
