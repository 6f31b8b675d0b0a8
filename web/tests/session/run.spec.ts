/** Programs in a terminal: seen, typed into, asked, stopped, ended and started again. */
import { expect, signIn, test, type Hub, type Page } from "../support/test.ts";
import { somebody } from "../support/people.ts";
import { focusTerminal, terminal, typeLine, wholeText } from "../support/terminals.ts";

test("a program is typed into, follows the window, ends with its code, and starts again", async ({ app, hub }) => {
  const session = await run(hub, 'echo "began in $PWD"; while read -r line; do [ "$line" = end ] && exit 7; echo "got <$line>"; stty size; done');
  await app.goto(`${hub.url}/s/${session}`);
  await expect(terminal(app)).toContainText(`began in ${hub.project}`);
  await expect(app.getByText("running", { exact: true }).first()).toBeVisible();
  await typeLine(app, "hello there");
  await expect(terminal(app)).toContainText("got <hello there>");

  const wide = await sizeAfter(app, "one");
  await app.setViewportSize({ width: 1000, height: 620 });
  let asked = 0;
  await expect(async () => {
    const narrow = await sizeAfter(app, `again${(asked += 1)}`);
    expect(narrow.cols).toBeLessThan(wide.cols);
    expect(narrow.rows).toBeLessThan(wide.rows);
  }).toPass();

  await typeLine(app, "end");
  const ended = app.getByTestId("run-ended");
  await expect(ended).toContainText("Exited with code 7");
  await focusAndType(app, "nobody hears this\n");
  await ended.getByRole("button", { name: "Restart" }).click();
  await expect(ended).toHaveCount(0);
  await typeLine(app, "second life");
  await expect(terminal(app)).toContainText("got <second life>");
  expect(await wholeText(app)).not.toContain("nobody hears this");
});

test("the program asks, and is answered with a card @both", async ({ app, hub }) => {
  const session = await run(hub, 'for what in one two three; do read -r -p "Delete file $what? [y/N] " said; echo "said <$said> to $what"; done; sleep 600');
  await app.goto(`${hub.url}/s/${session}`);
  const card = app.getByTestId("question-card");
  await expect(card).toContainText("Delete file one?");
  await expect(app.getByText("waiting for you")).toBeVisible();
  await card.getByRole("button", { name: "Approve" }).click();
  await expect(terminal(app)).toContainText("said <y> to one");
  await expect(card).toContainText("Delete file two?");
  await card.getByRole("button", { name: "Deny…" }).click();
  await card.getByRole("button", { name: "Deny", exact: true }).click();
  await expect(terminal(app)).toContainText("said <n> to two");
  await expect(card).toContainText("Delete file three?");
  // Who types the answer needs no card.
  await typeLine(app, "maybe");
  await expect(terminal(app)).toContainText("said <maybe> to three");
  await expect(card).toHaveCount(0);
});

test("a program is interrupted, asked to end, and killed", async ({ app, hub }) => {
  const stubborn = `trap 'echo heard-INT' INT; trap 'echo heard-TERM; exit 5' TERM; echo "up"; while :; do sleep 0.1; done`;
  const session = await run(hub, stubborn);
  await app.goto(`${hub.url}/s/${session}`);
  await expect(terminal(app)).toContainText("up");
  await stop(app, "Interrupt");
  await expect(terminal(app)).toContainText("heard-INT");
  await expect(app.getByTestId("run-ended")).toHaveCount(0);
  await stop(app, "Stop");
  await expect(terminal(app)).toContainText("heard-TERM");
  await expect(app.getByTestId("run-ended")).toContainText("Exited with code 5");

  await app.getByTestId("run-ended").getByRole("button", { name: "Restart" }).click();
  await expect(app.getByTestId("run-ended")).toHaveCount(0);
  await expect(terminal(app)).toContainText("up");
  await stop(app, "Kill");
  const question = app.getByRole("dialog", { name: "Kill the program?" });
  await question.getByRole("button", { name: "Cancel" }).click();
  await expect(app.getByTestId("run-ended")).toHaveCount(0);
  await stop(app, "Kill");
  await question.getByRole("button", { name: "Kill" }).click();
  await expect(app.getByTestId("run-ended")).toContainText("Ended by signal 9");
});

test("the network goes and comes back: each line is there once", async ({ page, hub, network }) => {
  const session = await run(hub, COUNTING);
  await signIn(page, hub, network.url);
  await page.goto(`${network.url}/s/${session}`);
  await startCounting(page);
  network.cut();
  await expect(page.getByTestId("connection")).toBeVisible();
  network.restore();
  await hasCounted(page);
});

test("the page is loaded anew while the program writes: each line is there once", async ({ app, hub }) => {
  const session = await run(hub, COUNTING);
  await app.goto(`${hub.url}/s/${session}`);
  await startCounting(app);
  await app.reload();
  await hasCounted(app);
});

test("the hub is killed and started again: what the program showed is still there", async ({ app, hub }) => {
  const session = await run(hub, 'echo "before it all"; read -r line; echo "got <$line>"; sleep 600');
  await app.goto(`${hub.url}/s/${session}`);
  await expect(terminal(app)).toContainText("before it all");
  await hub.kill();
  await expect(app.getByTestId("connection")).toBeVisible();
  await hub.start();
  await expect(app.getByTestId("connection")).toHaveCount(0, { timeout: 30_000 });
  await expect(terminal(app)).toContainText("before it all");
});

test("two browsers see the same program", async ({ app, hub, browser }) => {
  const session = await run(hub, 'while read -r line; do echo "got <$line>"; done');
  await app.goto(`${hub.url}/s/${session}`);
  const other = await (await browser.newContext({ viewport: { width: 900, height: 600 } })).newPage();
  await signIn(other, hub);
  await other.goto(`${hub.url}/s/${session}`);
  await typeLine(app, "from the one");
  await expect(terminal(other)).toContainText("got <from the one>");
  await typeLine(other, "from the other");
  await expect(terminal(app)).toContainText("got <from the other>");
  await expect(app.getByRole("button", { name: /fit here/ })).toBeVisible();
});

test("who may only look sees the program and cannot touch it", async ({ hub, browser }) => {
  const session = await run(hub, 'echo "look at me"; read -r -p "Delete it? [y/N] " said; echo "said <$said>"; sleep 600');
  const viewer = await somebody(browser, hub, "viewer");
  await viewer.goto(`${hub.url}/s/${session}`);
  await expect(terminal(viewer)).toContainText("look at me");
  await expect(viewer.getByRole("button", { name: "Stop the program" })).toHaveCount(0);
  const card = viewer.getByTestId("question-card");
  await expect(card).toContainText("You have view-only access, so you cannot answer.");
  await expect(card.getByRole("button", { name: "Approve" })).toHaveCount(0);
  await focusAndType(viewer, "y\n");
  await hub.command("run.stdin", { session_id: session, text: "owner\n" });
  await expect(terminal(viewer)).toContainText("said <owner>");
});

test("keys of the touch bar reach the program @phone", async ({ app, hub }) => {
  const session = await run(hub, "echo ready; cat -v");
  await app.goto(`${hub.url}/s/${session}`);
  await expect(terminal(app)).toContainText("ready");
  const keys = app.getByRole("toolbar", { name: "Terminal keys" });
  await focusTerminal(app);
  for (const name of ["Esc", "Up", "Tab", "Enter"]) await keys.getByRole("button", { name, exact: true }).click();
  await expect(terminal(app)).toContainText("^[^[[A");
  await keys.getByRole("button", { name: "Ctrl C", exact: true }).click();
  await expect(app.getByTestId("run-ended")).toBeVisible();
  await expect(keys.getByRole("button", { name: "Esc", exact: true })).toBeDisabled();
});

/** Begins when somebody presses Enter. */
const COUNTING = "echo ready; read -r; for i in $(seq 100); do echo tick-$i.; sleep 0.03; done; echo counted; sleep 600";

async function startCounting(page: Page): Promise<void> {
  await expect(terminal(page)).toContainText("ready");
  await typeLine(page, "");
  await expect(terminal(page)).toContainText(/tick-\d+\./);
}

async function hasCounted(page: Page): Promise<void> {
  await expect(terminal(page)).toContainText("counted", { timeout: 30_000 });
  const ticks = (await wholeText(page)).match(/tick-\d+\./g) ?? [];
  expect(ticks).toEqual(Array.from({ length: 100 }, (_, index) => `tick-${index + 1}.`));
}

/** A program in a terminal, as `qd run` starts one. */
async function run(hub: Hub, cmd: string): Promise<string> {
  const config = { harness: "pty", cwd: hub.project, run: { argv: ["bash", "-c", cmd], tool: "bash" } };
  const { session_id } = await hub.command<{ session_id: string }>("session.create", { config });
  return session_id;
}

async function stop(page: Page, how: string): Promise<void> {
  await page.getByRole("button", { name: "Stop the program" }).click();
  await page.getByRole("menuitem", { name: how }).click();
}

/** Types where nothing may be heard. */
async function focusAndType(page: Page, text: string): Promise<void> {
  await terminal(page).locator(".xterm-screen").click();
  await page.keyboard.type(text);
}

async function sizeAfter(page: Page, word: string): Promise<{ rows: number; cols: number }> {
  await typeLine(page, word);
  const answer = new RegExp(`got <${word}>\\s*(\\d+) (\\d+)`);
  await expect.poll(() => shown(page)).toMatch(answer);
  const [, rows, cols] = answer.exec(await shown(page)) ?? [];
  return { rows: Number(rows), cols: Number(cols) };
}

/** The screen, line by line. */
async function shown(page: Page): Promise<string> {
  return (await terminal(page).locator(".xterm-rows > div").allTextContents()).join("\n");
}
