/** Everything by keyboard: the palette, the switcher of sessions, the shortcuts and their help. */
import { event } from "./support/pi.ts";
import { talk } from "./support/prompting.ts";
import { expect, signIn, test, type Page } from "./support/test.ts";

test("the palette goes to sessions and pages, and does things", async ({ app, hub }) => {
  await hub.demo("Paint the ship");
  await hub.demo("Mend the sails");
  await expect(app.getByTestId("session-row")).toHaveCount(2);

  await app.keyboard.press("Control+k");
  const palette = app.getByRole("dialog", { name: "Search and commands" });
  const field = palette.getByRole("combobox");
  await expect(field).toBeFocused();
  await expect(palette.getByText("Sessions", { exact: true })).toBeVisible();
  await field.fill("sails");
  await expect(palette.getByRole("option", { selected: true })).toContainText("Mend the sails");
  await app.keyboard.press("Enter");
  await expect(app.getByRole("heading", { name: "Mend the sails", level: 1 })).toBeVisible();

  // It is there while something is typed, and switches to the other session at once.
  const message = app.getByRole("combobox", { name: "Message to the agent" });
  await message.fill("half a thought");
  await message.press("Control+k");
  await expect(palette.getByRole("option", { selected: true })).toContainText("Paint the ship");
  await app.keyboard.press("Enter");
  await expect(app.getByRole("heading", { name: "Paint the ship", level: 1 })).toBeVisible();

  await app.keyboard.press("Meta+k");
  await field.fill("usage");
  await app.keyboard.press("Enter");
  await expect(app.getByRole("heading", { name: "Usage", level: 1 })).toBeVisible();

  await app.keyboard.press("Control+k");
  await field.fill("dark theme");
  await app.keyboard.press("Enter");
  await expect(app.locator("html")).toHaveAttribute("data-theme", "dark");

  await app.keyboard.press("Control+k");
  await field.fill("hoist the flag");
  await expect(palette.getByRole("option").last()).toContainText("Search all conversations for “hoist the flag”");
  await app.keyboard.press("ArrowUp");
  await app.keyboard.press("Enter");
  await expect(app).toHaveURL(/\/history\?q=hoist/);

  await app.keyboard.press("Control+k");
  await expect(palette).toBeVisible();
  await app.keyboard.press("Escape");
  await expect(palette).toHaveCount(0);
  await app.keyboard.press("Control+k");
  await app.keyboard.press("Control+k");
  await expect(palette).toHaveCount(0);
});

test("the palette does things with the session that is open", async ({ app, hub }) => {
  const session = await hub.demo("Old name");
  await app.goto(`${hub.url}/s/${session}`);
  await expect(app.getByRole("heading", { name: "Old name", level: 1 })).toBeVisible();
  await app.keyboard.press("Control+k");
  await app.keyboard.type("rename this");
  await app.keyboard.press("Enter");
  await expect(app.getByRole("dialog").getByLabel("Title")).toHaveValue("Old name");
  await app.getByRole("dialog").getByLabel("Title").fill("New name");
  await app.keyboard.press("Enter");
  await expect(app.getByRole("heading", { name: "New name", level: 1 })).toBeVisible();
  await app.keyboard.press("Control+k");
  await app.keyboard.type("close this session");
  await app.keyboard.press("Enter");
  await expect(app.getByText("Closed “New name”")).toBeVisible();
});

test("what is typed before the palette is loaded is typed into it", async ({ page, hub }) => {
  // Without the service worker the page loads its parts itself, and the test can let one wait.
  await page.addInitScript("delete Navigator.prototype.serviceWorker");
  const typed = event();
  await page.route(/\/assets\/Palette-.*\.js/, async (route) => {
    await typed.happened;
    await route.continue();
  });
  const session = await hub.demo("Old name");
  await signIn(page, hub);
  await page.goto(`${hub.url}/s/${session}`);
  await expect(page.getByRole("heading", { name: "Old name", level: 1 })).toBeVisible();
  await page.keyboard.press("Control+k");
  await page.keyboard.type("remane");
  for (let times = 0; times < 4; times += 1) await page.keyboard.press("Backspace");
  await page.keyboard.type("name this");
  await page.keyboard.press("Enter");
  typed.happen();
  await expect(page.getByRole("dialog").getByLabel("Title")).toHaveValue("Old name");
  await expect(page).toHaveURL(`${hub.url}/s/${session}`);
});

test("one press goes to pages, sessions and their views", async ({ app, hub }) => {
  const calm = await hub.demo("Calm");
  const asking = await hub.demo("Asking");
  await talk(hub, asking, "/question");
  await expect(app.getByTestId("group-needs")).toBeVisible();
  for (const [keys, path] of [
    ["g a", "/approvals"],
    ["g h", "/history"],
    ["g u", "/usage"],
    ["g s", "/settings"],
    ["g f", "/"],
    ["n", "/new"],
    ["a", `/s/${asking}`],
    ["]", `/s/${calm}`],
    ["[", `/s/${asking}`],
    ["3", `/s/${asking}/files`],
    ["4", `/s/${asking}/changes`],
    ["1", `/s/${asking}`],
  ] as const) {
    await leaveFields(app);
    for (const key of keys.split(" ")) await app.keyboard.press(key);
    await expect(app, `after ${keys}`).toHaveURL(new RegExp(`^${hub.url}${path}(/[a-z]+)?$`));
    await expect(app.locator("main :is(h1, h2, [data-testid])").first()).toBeAttached();
  }
  await leaveFields(app);
  await app.keyboard.press("2");
  await expect(app).toHaveURL(`${hub.url}/s/${asking}/terminal`);
});

test("search, theme and help have keys; what is typed is not taken for them", async ({ app, hub }) => {
  await hub.demo("Calm");
  await expect(app.getByTestId("session-row")).toHaveCount(1);
  await app.keyboard.press("/");
  const search = app.getByRole("searchbox", { name: "Search sessions" });
  await expect(search).toBeFocused();
  await app.keyboard.type("n?t");
  await expect(search).toHaveValue("n?t");
  await expect(app.getByRole("dialog")).toHaveCount(0);
  await search.fill("");
  await leaveFields(app);
  await app.keyboard.press("t");
  await expect(app.locator("html")).toHaveAttribute("data-theme", "dark");
  await app.keyboard.press("t");
  await expect(app.locator("html")).toHaveAttribute("data-theme", "light");

  await app.keyboard.press("?");
  const help = app.getByRole("dialog", { name: "Keyboard shortcuts" });
  await expect(help).toContainText("The next session that needs you");
  await expect(help).toContainText("Stop the agent");
  await app.keyboard.press("n");
  await expect(help).toBeVisible();
  await app.keyboard.press("Escape");
  await expect(help).toHaveCount(0);
  await expect(app).toHaveURL(`${hub.url}/`);
});

test("without a mouse: rows, menus and dialogs give the focus back", async ({ app, hub }) => {
  await hub.demo("First");
  await hub.demo("Second");
  await expect(app.getByTestId("session-row")).toHaveCount(2);
  await app.getByLabel("Sort by").selectOption("Title");
  const first = app.getByTestId("session-row").getByRole("link", { name: "First" });
  await first.focus();
  await app.keyboard.press("ArrowDown");
  await expect(app.getByTestId("session-row").getByRole("link", { name: "Second" })).toBeFocused();
  await app.keyboard.press("k");
  await expect(first).toBeFocused();

  await app.keyboard.press("Tab");
  const button = app.getByRole("button", { name: "Actions for First" });
  await expect(button).toBeFocused();
  await app.keyboard.press("Enter");
  await expect(app.getByRole("menuitem", { name: "Open" })).toBeFocused();
  await app.keyboard.press("ArrowDown");
  await expect(app.getByRole("menuitem", { name: "Rename" })).toBeFocused();
  await app.keyboard.press("Escape");
  await expect(button).toBeFocused();
  await app.keyboard.press("Enter");
  await expect(app.getByRole("menuitem", { name: "Open" })).toBeFocused();
  await app.keyboard.press("r");
  await expect(app.getByRole("menuitem", { name: "Rename" })).toBeFocused();
  await app.keyboard.press("Enter");
  await expect(app.getByRole("dialog").getByLabel("Title")).toBeFocused();
  await app.keyboard.type("Renamed");
  await app.keyboard.press("Enter");
  await expect(app.getByTestId("session-row").getByRole("link", { name: "Renamed" })).toBeVisible();

  // A page that was just opened has the keyboard in its content already; from anywhere else a link leads there.
  await app.reload();
  await expect(app.getByRole("main")).toBeFocused();
  const skip = app.getByRole("link", { name: "Skip to content" });
  await skip.focus();
  await expect(skip).toBeInViewport();
  await app.keyboard.press("Enter");
  await expect(app.getByRole("main")).toBeFocused();
});

test("on the phone the bar at the bottom leads everywhere, the palette too @phone", async ({ app, hub }) => {
  await hub.demo("Paint the ship");
  const bar = app.getByRole("navigation", { name: "Pages" });
  for (const [name, path] of [
    ["Approvals", "/approvals"],
    ["New", "/new"],
    ["History", "/history"],
    ["Fleet", "/"],
  ] as const) {
    await bar.getByRole("link", { name }).tap();
    await expect(app).toHaveURL(hub.url + path);
    await expect(bar.getByRole("link", { name })).toHaveAttribute("aria-current", "page");
  }
  for (const target of await bar.locator("a, button").all()) {
    const box = await target.boundingBox();
    expect(Math.min(box?.width ?? 0, box?.height ?? 0)).toBeGreaterThanOrEqual(44);
  }
  await bar.getByRole("button", { name: "More" }).tap();
  await app.getByRole("button", { name: "Search and commands" }).tap();
  const palette = app.getByRole("dialog", { name: "Search and commands" });
  await palette.getByRole("combobox").fill("ship");
  await palette.getByRole("option").first().tap();
  await expect(app.getByRole("heading", { name: "Paint the ship", level: 1 })).toBeVisible();
  await expect(bar).toHaveCount(0);
  await app.getByRole("link", { name: "Back to the fleet" }).tap();
  await expect(app.getByTestId("session-row")).toHaveCount(1);

  await bar.getByRole("button", { name: "More" }).tap();
  await app.getByLabel("Theme").selectOption("Light");
  await expect(app.locator("html")).toHaveAttribute("data-theme", "light");
  await app.getByRole("link", { name: "Usage" }).tap();
  await expect(app.getByRole("heading", { name: "Usage", level: 1 })).toBeVisible();
  const widths = await app.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  expect(widths[0]).toBeLessThanOrEqual(widths[1] ?? 0);
});

/** As a click beside every field does. */
async function leaveFields(page: Page): Promise<void> {
  await page.evaluate(() => document.activeElement instanceof HTMLElement && document.activeElement.blur());
}
