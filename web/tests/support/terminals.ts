/** Terminals as a person uses them: by what is on the screen and by the keyboard. */
import { expect, type Locator, type Page } from "@playwright/test";

export function terminal(page: Page): Locator {
  return page.getByTestId("terminal");
}

/** Types a line into the terminal. */
export async function typeLine(page: Page, line: string): Promise<void> {
  await focusTerminal(page);
  await page.keyboard.type(line);
  await page.keyboard.press("Enter");
}

export async function focusTerminal(page: Page): Promise<void> {
  await terminal(page).locator(".xterm-screen").click();
  await expect(page.getByRole("textbox", { name: /type here/ })).toBeFocused();
}

/** Everything the terminal shows and has shown, as copying all of it gives it. */
export async function wholeText(page: Page): Promise<string> {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  for (const action of ["Select all", "Copy selection"]) {
    await page.getByRole("button", { name: "Terminal options" }).click();
    await page.getByRole("menuitem", { name: action }).click();
  }
  await expect(page.getByText("Copied.").first()).toBeVisible();
  return page.evaluate(() => navigator.clipboard.readText());
}

/** Pastes a text with the keyboard. */
export async function paste(page: Page, text: string): Promise<void> {
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await page.evaluate((copied) => navigator.clipboard.writeText(copied), text);
  await page.keyboard.press("Control+v");
}
