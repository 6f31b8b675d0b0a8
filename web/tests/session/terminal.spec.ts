/** Shells on the machine: shared, with scrollback and search, and still there after a reload. */
import { expect, signIn, test, watch, type Hub, type Page } from "../support/test.ts";
import { somebody } from "../support/people.ts";
import { focusTerminal, paste, terminal, typeLine, wholeText } from "../support/terminals.ts";

test("a shell opens, takes what is typed, and has the size of the window", async ({ app, hub }) => {
  await openTerminal(app, hub);
  await typeLine(app, "pwd; echo sum-$((40 + 2))");
  await expect(terminal(app)).toContainText(hub.project);
  await expect(terminal(app)).toContainText("sum-42");

  const wide = await sizeOf(app);
  await app.setViewportSize({ width: 1000, height: 600 });
  await expect(async () => {
    const narrow = await sizeOf(app);
    expect(narrow.cols).toBeLessThan(wide.cols);
    expect(narrow.rows).toBeLessThan(wide.rows);
  }).toPass();

  await app.getByRole("button", { name: "Terminal options" }).click();
  await app.getByRole("menuitem", { name: "Larger text" }).click();
  const before = (await sizeOf(app)).cols;
  await expect(async () => expect((await sizeOf(app)).cols).toBeLessThanOrEqual(before)).toPass();

  await typeLine(app, "exit 3");
  await expect(app.getByText("The shell ended with code 3.")).toBeVisible();
  await app.getByRole("status").getByRole("button", { name: "New terminal" }).click();
  await typeLine(app, "echo again-$((1 + 1))");
  await expect(terminal(app)).toContainText("again-2");
});

test("what went by is scrolled to and searched", async ({ app, hub }) => {
  await openTerminal(app, hub);
  await typeLine(app, "for i in $(seq 400); do echo line-$i.; done; echo Apple apple");
  await expect(terminal(app)).toContainText("line-400.");
  await expect(terminal(app)).not.toContainText("line-7.");
  await terminal(app).hover();
  for (let notch = 0; notch < 3; notch += 1) await app.mouse.wheel(0, -120);
  await expect(terminal(app)).not.toContainText("line-400.");
  await focusTerminal(app);
  for (let page = 0; page < 12; page += 1) await app.keyboard.press("Shift+PageUp");
  await expect(terminal(app)).toContainText("line-7.");

  await app.keyboard.press("Control+f");
  const field = app.getByRole("searchbox", { name: "Search in the terminal" });
  await field.fill("line-250.");
  await expect(app.getByRole("search").getByRole("status")).toHaveText("1 of 1");
  await expect(terminal(app)).toContainText("line-250.");
  await field.fill("line-1\\d\\d\\.");
  await expect(app.getByRole("search").getByRole("status")).toHaveText("Not found");
  await app.getByRole("button", { name: "Regular expression" }).click();
  await expect(app.getByRole("search").getByRole("status")).toHaveText("100 of 100");
  await app.getByRole("button", { name: "Previous hit" }).click();
  await expect(app.getByRole("search").getByRole("status")).toHaveText("99 of 100");
  await app.getByRole("button", { name: "Regular expression" }).click();
  await field.fill("APPLE");
  await expect(app.getByRole("search").getByRole("status")).toHaveText(/of [1-9]/);
  await app.getByRole("button", { name: "Match capitals" }).click();
  await expect(app.getByRole("search").getByRole("status")).toHaveText("Not found");
  await field.press("Escape");
  await expect(field).toHaveCount(0);
  await app.keyboard.type("echo back-$((3 + 4))\n");
  await expect(terminal(app)).toContainText("back-7");
});

test("several terminals stay after a reload, and are closed for good", async ({ app, hub }) => {
  await openTerminal(app, hub);
  await typeLine(app, "echo the-$((1))st-one");
  await expect(terminal(app)).toContainText("the-1st-one");
  await app.getByRole("button", { name: "New terminal" }).click();
  await expect(app.getByRole("tab")).toHaveCount(2);
  await typeLine(app, "echo the-$((2))nd-one");
  await expect(terminal(app)).toContainText("the-2nd-one");
  await expect(terminal(app)).not.toContainText("the-1st-one");

  await app.reload();
  await expect(app.getByRole("tab")).toHaveCount(2);
  await expect(terminal(app)).toContainText("the-2nd-one");
  await app.getByRole("tab", { name: "Terminal 1" }).click();
  await expect(terminal(app)).toContainText("the-1st-one");
  expect((await wholeText(app)).match(/the-1st-one/g)).toHaveLength(1);

  await close(app, "Terminal 1");
  await expect(app.getByRole("tab")).toHaveCount(1);
  await expect(terminal(app)).toContainText("the-2nd-one");
  await close(app, "Terminal 1");
  await expect(app.getByText("No terminal is open")).toBeVisible();
  await app.getByRole("button", { name: "New terminal" }).click();
  await typeLine(app, "echo fresh-$((5 + 5))");
  await expect(terminal(app)).toContainText("fresh-10");
});

test("two browsers share a terminal, and it is nobody's session", async ({ app, hub, browser }) => {
  const session = await openTerminal(app, hub);
  await typeLine(app, "echo hello-$((6 * 7))");
  await expect(terminal(app)).toContainText("hello-42");
  const other = await (await browser.newContext({ viewport: { width: 900, height: 500 } })).newPage();
  const problems = watch(other);
  await signIn(other, hub);
  await other.goto(`${hub.url}/s/${session}/terminal`);
  await expect(terminal(other)).toContainText("hello-42");
  await typeLine(other, "echo both-$((7 * 8))");
  await expect(terminal(other)).toContainText("both-56");
  await expect(terminal(app)).toContainText("both-56");
  // The window that was used last has the say; the other one can take it back.
  await app.getByRole("button", { name: /fit here/ }).click();
  await expect(other.getByRole("button", { name: /fit here/ })).toBeVisible();

  await other.goto(hub.url);
  await expect(other.locator(`[data-testid="session-row"][data-session="${session}"]`)).toBeVisible();
  await expect(other.getByTestId("session-row")).toHaveCount(1);
  await expect(app.getByRole("navigation").getByText(/^terminal in/i)).toHaveCount(0);
  expect(problems).toEqual([]);
});

test("the network goes and comes back: nothing is lost or doubled", async ({ page, hub, network }) => {
  const session = await hub.demo();
  await signIn(page, hub, network.url);
  await page.goto(`${network.url}/s/${session}/terminal`);
  await typeLine(page, "for i in $(seq 60); do echo tick-$i.; sleep 0.05; done");
  await expect(terminal(page)).toContainText(/tick-\d+\./);
  network.cut();
  await expect(page.getByText("reconnecting…")).toBeVisible();
  network.restore();
  await expect(terminal(page)).toContainText("tick-60.", { timeout: 30_000 });
  const ticks = (await wholeText(page)).match(/^tick-\d+\./gm) ?? [];
  expect(ticks).toEqual(Array.from({ length: 60 }, (_, index) => `tick-${index + 1}.`));
});

test("several lines are pasted into a program that would run each only when the person says so", async ({ app, hub }) => {
  await openTerminal(app, hub);
  await typeLine(app, "echo ready-$((1 + 1)); cat > pasted.txt");
  await expect(terminal(app)).toContainText("ready-2");
  await focusTerminal(app);
  await paste(app, "one line\n");
  await paste(app, "second\nthird\n");
  const question = app.getByRole("dialog", { name: "Paste 2 lines?" });
  await question.getByRole("button", { name: "Cancel" }).click();
  await focusTerminal(app);
  await paste(app, "fourth\nfifth\n");
  await question.getByRole("button", { name: "Paste" }).click();
  await expect(terminal(app)).toContainText("fifth");
  await app.keyboard.press("Control+d");
  await typeLine(app, "tr '\\n' + < pasted.txt");
  await expect(terminal(app)).toContainText("one line+fourth+fifth+");
});

test("the keyboard gets out again", async ({ app, hub }) => {
  await openTerminal(app, hub);
  await focusTerminal(app);
  await app.keyboard.press("Control+Shift+L");
  await expect(app.getByRole("textbox", { name: /type here/ })).not.toBeFocused();
});

test("who may only look gets no shell", async ({ hub, browser }) => {
  const session = await hub.demo();
  const viewer = await somebody(browser, hub, "viewer");
  await viewer.goto(`${hub.url}/s/${session}/terminal`);
  await expect(viewer.getByText("You do not have shell access")).toBeVisible();
  await expect(terminal(viewer)).toHaveCount(0);
});

test("keys a phone has not, and a finger that scrolls @phone", async ({ app, hub }) => {
  await openTerminal(app, hub);
  const keys = app.getByRole("toolbar", { name: "Terminal keys" });
  await typeLine(app, "echo found-$((9 + 1)) > only-this.txt; echo ready-$((1 + 1)); cat -v");
  await expect(terminal(app)).toContainText("ready-2");
  await focusTerminal(app);
  for (const name of ["Esc", "Up", "Down", "Left", "Right", "Pipe", "Enter"]) await keys.getByRole("button", { name, exact: true }).click();
  await expect(terminal(app)).toContainText("^[^[[A^[[B^[[D^[[C|^[^[[A^[[B^[[D^[[C|");
  const ctrl = keys.getByRole("button", { name: "Ctrl", exact: true });
  await ctrl.click();
  await expect(ctrl).toHaveAttribute("aria-pressed", "true");
  await app.keyboard.type("c");
  await expect(ctrl).toHaveAttribute("aria-pressed", "false");
  await expect(terminal(app)).toContainText("^C");
  await app.keyboard.type("cat only");
  await keys.getByRole("button", { name: "Tab", exact: true }).click();
  await expect(terminal(app)).toContainText("cat only-this.txt");
  await keys.getByRole("button", { name: "Enter", exact: true }).click();
  await expect(terminal(app)).toContainText("found-10");

  await typeLine(app, "for i in $(seq 200); do echo row-$i.; done");
  await expect(terminal(app)).toContainText("row-200.");
  await expect(terminal(app)).not.toContainText("row-150.");
  await drag(app, 250);
  await expect(terminal(app)).not.toContainText("row-200.");
});

/** The terminal of a new session. */
async function openTerminal(page: Page, hub: Hub): Promise<string> {
  const session = await hub.demo();
  await page.goto(`${hub.url}/s/${session}`);
  await page.getByRole("link", { name: "Terminal" }).click();
  await expect(terminal(page)).toContainText(/[$#] /);
  return session;
}

let asked = 0;

/** The size the shell has, as it says itself. */
async function sizeOf(page: Page): Promise<{ rows: number; cols: number }> {
  asked += 1;
  await typeLine(page, `echo "size${asked}: $(stty size)."`);
  const answer = new RegExp(`size${asked}: (\\d+) (\\d+)\\.`);
  await expect(terminal(page)).toContainText(answer);
  const [, rows, cols] = answer.exec((await terminal(page).textContent()) ?? "") ?? [];
  return { rows: Number(rows), cols: Number(cols) };
}

async function close(page: Page, name: string): Promise<void> {
  await page.getByRole("button", { name: "Close this terminal" }).click();
  await page.getByRole("dialog", { name: `Close ${name}?` }).getByRole("button", { name: "Close terminal" }).click();
}

/** A finger on the terminal that goes down by so many pixels. */
async function drag(page: Page, distance: number): Promise<void> {
  const box = await terminal(page).boundingBox();
  if (!box) throw new Error("no terminal");
  const browser = await page.context().newCDPSession(page);
  const x = box.x + box.width / 2;
  const start = box.y + 40;
  await browser.send("Input.dispatchTouchEvent", { type: "touchStart", touchPoints: [{ x, y: start }] });
  for (let step = 1; step <= 10; step += 1) {
    await browser.send("Input.dispatchTouchEvent", { type: "touchMove", touchPoints: [{ x, y: start + (distance * step) / 10 }] });
  }
  await browser.send("Input.dispatchTouchEvent", { type: "touchEnd", touchPoints: [] });
}
