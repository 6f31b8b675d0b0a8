/** What was used, by session, model and day. */
import type { Locator } from "@playwright/test";

import { COST_OF_ANSWER, PricedModel } from "./support/priced.ts";
import { talk } from "./support/prompting.ts";
import { expect, Hub, signIn, test, watch, type Page } from "./support/test.ts";

test("tokens of the demo agent are counted by day, model and session @both", async ({ app, hub, isMobile }) => {
  const first = await hub.demo("Counting ropes");
  const second = await hub.demo("Counting sails");
  // Every answer of the demo agent says 12 in and 34 out.
  await talk(hub, first, "/text", "/text");
  await talk(hub, second, "/text");
  if (isMobile) {
    await app.getByRole("button", { name: "More" }).click();
    await app.getByRole("dialog").getByRole("link", { name: "Usage" }).click();
  } else await app.getByRole("link", { name: "Usage" }).first().click();
  await expect(app.getByRole("heading", { name: "Usage" })).toBeVisible();
  // Where no agent tells a cost, tokens are compared.
  await expect(app.getByRole("tab", { name: "Tokens" })).toHaveAttribute("aria-selected", "true");
  await expect(app.getByRole("img", { name: /^Tokens per day.* 138 in all/ })).toBeVisible();
  await expect(app.locator(".totals")).toContainText("138");
  await expect(row(app, "Usage by day")).toContainText("138");
  await expect(row(app, "Usage by model")).toContainText("demo-1 (demo)");
  const sessions = app.getByRole("region", { name: "Usage by session" }).locator("tbody tr");
  await expect(sessions).toHaveCount(2);
  await expect(sessions.first()).toContainText("Counting ropes");
  await expect(sessions.first()).toContainText("92");

  await app.getByRole("button", { name: "7 days" }).click();
  await expect(app).toHaveURL(/range=7/);
  await app.getByLabel("Last day").fill("2020-01-02");
  await expect(app.getByText("No usage on these days")).toBeVisible();
  await app.getByRole("button", { name: "1 year" }).click();
  await sessions.first().getByRole("link").click();
  await expect(app).toHaveURL(`${hub.url}/s/${first}`);
});

test("what pi's model cost is what the page says, in fleet and usage", async ({ page }) => {
  const model = new PricedModel();
  const hub = new Hub(await model.start());
  try {
    await hub.start();
    const problems = watch(page);
    const config = { harness: "pi", cwd: hub.project, title: "Worth it" };
    const { session_id } = await hub.command<{ session_id: string }>("session.create", { config });
    await talk(hub, session_id, "what is it worth?", "and now?", "and then?");
    const cost = `$${(3 * COST_OF_ANSWER).toFixed(2)}`;
    await signIn(page, hub);
    await expect(page.getByTestId("session-row")).toContainText(cost);
    await page.getByRole("link", { name: "Usage" }).first().click();
    await expect(page.getByRole("img", { name: new RegExp(`^Cost per day.* \\${cost} in all`) })).toBeVisible();
    for (const table of ["Usage by day", "Usage by model", "Usage by session"]) await expect(row(page, table)).toContainText(cost);
    await expect(row(page, "Usage by session")).toContainText("Worth it");
    await page.getByRole("tab", { name: "Tokens" }).click();
    await expect(page.getByRole("img", { name: /^Tokens per day.* 3\.6k in all/i })).toBeVisible();
    await page.reload();
    await expect(page.getByRole("tab", { name: "Tokens" })).toHaveAttribute("aria-selected", "true");
    expect(problems).toEqual([]);
  } finally {
    await hub.end();
    model.end();
  }
});

function row(page: Page, table: string): Locator {
  return page.getByRole("region", { name: table }).locator("tbody tr").first();
}
