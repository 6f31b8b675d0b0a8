/** What people do in a conversation, in a line each. */
import { expect, type Locator, type Page } from "@playwright/test";

/** Where the person writes. */
export function composer(page: Page): Locator {
  return page.getByLabel("Message to the agent");
}

/** Writes a message and sends it, with Enter or, where Enter is a new line, with the button. */
export async function say(page: Page, text: string): Promise<void> {
  await composer(page).fill(text);
  await page.getByRole("button", { name: "Send", exact: true }).click();
  await expect(composer(page)).toHaveValue("");
}

/** Waits until the agent has nothing to do. */
export async function idle(page: Page): Promise<void> {
  await expect(page.getByTestId("session-status")).toHaveText("idle");
  await expect(page.getByRole("button", { name: /^Stop the agent/ })).toHaveCount(0);
}

/** The last answer of the agent. */
export function answer(page: Page): Locator {
  return page.locator('[data-testid="message"][data-role="assistant"]').last();
}

/** Chooses something in the menu of the session. */
export async function choose(page: Page, name: string): Promise<void> {
  await page.getByTestId("session-menu").click();
  await page.getByRole("menuitem", { name, exact: true }).click();
}
