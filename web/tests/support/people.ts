/** Other people than the owner, with browsers of their own. */
import { expect, type Browser, type Page, type ViewportSize } from "@playwright/test";

import type { Hub } from "./hub.ts";

const PASSWORD = "correct horse battery";

/** A browser in which a new person of this role has signed in, with name and password. */
export async function somebody(browser: Browser, hub: Hub, role: "viewer" | "operator" | "owner", viewport?: ViewportSize): Promise<Page> {
  const username = `some-${role}`;
  await hub.rest("POST", "/api/people", { username, password: PASSWORD, role });
  const page = await (await browser.newContext({ locale: "en-GB", timezoneId: "UTC", ...(viewport ? { viewport } : {}) })).newPage();
  await page.goto(hub.url);
  await page.getByLabel("Name").fill(username);
  await page.getByLabel("Password").fill(PASSWORD);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("navigation").first()).toBeVisible();
  return page;
}
