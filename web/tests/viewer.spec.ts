/** Who may only look is offered nothing else: what cannot be done is not there, or says why. */
import { somebody } from "./support/people.ts";
import { expect, test as piTest, type Page } from "./support/pi.ts";
import { test } from "./support/test.ts";

test("nothing starts from the first steps and the form of a new session @both", async ({ hub, browser, isMobile }) => {
  const viewer = await somebody(browser, hub, "viewer", isMobile ? { width: 390, height: 844 } : undefined);
  await expect(viewer.getByText("Your role, viewer, cannot start sessions.")).toBeVisible();
  for (const name of ["Start the demo", "Start a real agent", "Add another machine"]) {
    await expect(viewer.getByRole("button", { name }).or(viewer.getByRole("link", { name }))).toHaveCount(0);
  }
  await expect(viewer.locator('a[href="/new"]')).toHaveCount(0);
  // What is left of the bar below fills it.
  if (isMobile) expect((await viewer.getByRole("button", { name: "More" }).boundingBox())?.width).toBeGreaterThan(90);
  await viewer.goto(`${hub.url}/new`);
  await expect(viewer.getByText("You have view-only access")).toBeVisible();
  await expect(viewer.getByRole("button", { name: "Try the demo" })).toHaveCount(0);
  await viewer.keyboard.press("Control+k");
  await viewer.getByRole("combobox").fill("new session");
  await expect(viewer.getByRole("option", { name: /Search all conversations/ })).toBeVisible();
  await expect(viewer.getByRole("option", { name: /^New session/ })).toHaveCount(0);
});

piTest("a working session is read, and not stopped, told, renamed or deleted", async ({ hub, browser, model }) => {
  const session = await hub.pi();
  const enough = new AbortController();
  model.script.push({ wordsUntil: enough.signal });
  await hub.command("set_session_name", { session_id: session, name: "Write a book" });
  await hub.command("prompt", { session_id: session, message: "Write" });
  const viewer = await somebody(browser, hub, "viewer");
  expect(await itemsOf(viewer, "Actions for Write a book")).toEqual(["Open"]);
  await viewer.keyboard.press("Escape");
  await viewer.getByTestId("session-row").getByRole("link", { name: "Write a book" }).click();
  await expect(viewer.getByTestId("message").last()).toContainText("word1");
  await expect(viewer.getByPlaceholder("You have view-only access.")).toBeDisabled();
  for (const name of [/^Stop the agent/, /^Model:/, /Thinking level/, "Fork from here"]) {
    await expect(viewer.getByRole("button", { name })).toHaveCount(0);
  }
  await expect(viewer.getByRole("radiogroup", { name: "When the agent reads it" })).toHaveCount(0);
  await expect(viewer.locator(".composer")).toContainText("scripted");
  const own = ["Export as HTML", "Export as Markdown", "Export as JSON", "Session info"];
  expect(await itemsOf(viewer, "Session actions")).toEqual(own);
  enough.abort();
});

async function itemsOf(page: Page, menu: string): Promise<string[]> {
  await page.getByRole("button", { name: menu }).click();
  await expect(page.getByRole("menuitem").first()).toBeVisible();
  return (await page.getByRole("menuitem").allInnerTexts()).map((text) => text.trim());
}
