/** A hub with a new build of the app: the open page says so, and changes when its person wants it to. */
import { NewBuild } from "./support/newBuild.ts";
import { expect, signIn, test, watch, type Page } from "./support/test.ts";

const buildTest = test.extend<{ build: NewBuild; address: string }>({
  build: async ({ hub }, use) => {
    const build = new NewBuild(hub);
    await use(build);
    build.end();
  },
  address: async ({ build }, use) => use(await build.start()),
});

buildTest("a new version is offered, waits while one writes, and comes with a click @both", async ({ page, hub, build, address }) => {
  const problems = watch(page);
  const session = await hub.demo("Written to");
  await signIn(page, hub, address);
  await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
  await page.goto(`${address}/s/${session}`);
  await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
  expect(await scriptOf(page)).toMatch(/\/assets\/index-/);
  const bar = page.getByTestId("update-bar");

  // Nothing is new yet: a look finds nothing.
  await look(page);
  await expect(bar).toHaveCount(0);
  build.isOut = true;
  await look(page);
  await expect(bar).toContainText("A new version is ready.");
  await page.getByLabel("Message to the agent").fill("not lost by the new version");
  await bar.getByRole("button", { name: "Reload" }).click();
  await expect(page.locator("script[type=module][src]")).toHaveAttribute("src", /\/assets\/other-index-/);
  await expect(page.getByLabel("Message to the agent")).toHaveValue("not lost by the new version");
  await expect(bar).toHaveCount(0);
  expect(await page.evaluate(() => caches.keys())).toEqual(["quarterdeck-shell-another"]);
  expect(problems).toEqual([]);
});

buildTest("who wants the new version later goes on with the old one, and has it at the next start", async ({ page, hub, build, address }) => {
  await signIn(page, hub, address);
  await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
  await page.reload();
  await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
  build.isOut = true;
  await look(page);
  const bar = page.getByTestId("update-bar");
  await bar.getByRole("button", { name: "Later" }).click();
  await expect(bar).toHaveCount(0);
  await page.getByRole("link", { name: "History" }).first().click();
  await expect(page.getByRole("heading", { name: "History" })).toBeVisible();
  expect(await scriptOf(page)).toMatch(/\/assets\/index-/);
  await page.reload();
  await expect(page.locator("script[type=module][src]")).toHaveAttribute("src", /\/assets\/other-index-/);
  await expect(bar).toHaveCount(0);
  await expect.poll(() => page.evaluate(() => caches.keys())).toEqual(["quarterdeck-shell-another"]);
});

function scriptOf(page: Page): Promise<string | null> {
  return page.evaluate(() => document.querySelector("script[type=module][src]")?.getAttribute("src") ?? null);
}

/** The browser looks for a new build, as it does when the page is looked at again. */
async function look(page: Page): Promise<void> {
  await page.evaluate(async () => {
    const registration = await navigator.serviceWorker.ready;
    await registration.update();
  });
}
