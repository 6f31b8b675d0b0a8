/** What agents, tools and files say does no harm, whatever it is. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { expect, extension, openPi, test, type Hub, type Page } from "./support/pi.ts";
import { answer, idle, say } from "./support/talk.ts";

const MARKUP = [
  '<script>document.title = "pwned"; window.pwned = 1</script>',
  '<img src="x" onerror="window.pwned = 2">',
  '<svg onload="window.pwned = 3"><animate onbegin="window.pwned = 3"/></svg>',
  '<iframe srcdoc="<script>parent.pwned = 4</script>"></iframe>',
  "<style>body { display: none }</style>",
  '<form action="https://evil.example/"><button>Sign in again</button></form>',
  '<a href="javascript:window.pwned = 5">click</a>',
  "<base href='https://evil.example/'>",
  "<details open ontoggle=window.pwned=6>",
  "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=window.pwned=7&gt;\">",
].join("\n\n");

const LINKS = [
  "[one](javascript:window.pwned=11)",
  "[two](JaVaScRiPt:window.pwned=12)",
  "[three](java&#10;script:window.pwned=13)",
  "[four](data:text/html,<script>parent.pwned=14</script>)",
  "[five](vbscript:pwned)",
  "<javascript:window.pwned=16>",
  "[seven](&#106;avascript:window.pwned=17)",
  "[eight]( javascript:window.pwned=18)",
  "![picture](https://evil.example/pixel.png)",
  "![drawing](data:image/svg+xml,<svg onload=alert(1)>)",
  '[nine](https://good.example/" onmouseover="window.pwned=19)',
  "[ten](//evil.example/)",
  "[eleven](/logout)",
].join("\n\n");

test("markup in an answer is text: nothing runs, nothing loads @both", async ({ app, hub, model }) => {
  const foreign = watchRequests(app, hub);
  await openPi(app, hub);
  model.script.push({ text: `${MARKUP}\n\nThe end.` });
  await say(app, "be evil");
  await expect(answer(app)).toContainText("The end.");
  await idle(app);
  // People read what was written, letter by letter.
  await expect(answer(app)).toContainText('<img src="x" onerror="window.pwned = 2">');
  await expect(answer(app).locator(DANGEROUS)).toHaveCount(0);
  await harmless(app, foreign);
});

test("links of an answer lead to pages or nowhere, and pictures from elsewhere are not loaded", async ({ app, hub, model }) => {
  const foreign = watchRequests(app, hub);
  await openPi(app, hub);
  model.script.push({ text: `${LINKS}\n\nThe end.` });
  await say(app, "be evil");
  await expect(answer(app)).toContainText("The end.");
  const links = await answer(app).locator("a").evaluateAll((all) => all.map((link) => (link as HTMLAnchorElement).href));
  for (const link of links) expect(link).toMatch(/^https?:/);
  await expect(answer(app).getByRole("link", { name: "eleven" })).toHaveCount(0);
  await expect(answer(app).locator("img")).toHaveCount(0);
  for (const word of ["one", "two", "three", "four", "five", "seven", "eight"]) await answer(app).getByText(word, { exact: true }).click();
  await expect(app).toHaveURL(/\/s\/[^/]+$/);
  const outside = answer(app).getByRole("link", { name: /picture/ });
  await expect(outside).toHaveAttribute("rel", /noopener/);
  await expect(outside).toHaveAttribute("target", "_blank");
  await harmless(app, foreign);
});

test("controls and direction tricks are seen, in answers and in outputs", async ({ app, hub, model }) => {
  const foreign = watchRequests(app, hub);
  await openPi(app, hub);
  writeFileSync(join(hub.project, "evil"), "\u001b]0;pwned\u0007\u001b[2J\u001b[31mred\u001b[0m \u001b]8;;javascript:window.pwned=21\u0007link\u001b]8;;\u0007 nul\u0000 bell\u0007 <b>bold</b> \u202Etxet\u202C done\n");
  model.script.push(
    { tool: "bash", arguments: { command: "cat evil" } },
    { tool: "bash", arguments: { command: "true \u202E# <img src=x onerror=window.pwned=22>" } },
    { text: "Press `ls\u202E` or\u2066 not\u0007; \u001b[31mred\u001b[0m. The end." },
  );
  await say(app, "be evil");
  await expect(answer(app)).toContainText("The end.");
  await expect(answer(app)).toContainText("‹U+202E›");
  await expect(answer(app)).toContainText("‹U+2066›");
  const output = app.getByTestId("tool-card").first().getByRole("group", { name: "Output" });
  await expect(output).toContainText("<b>bold</b>");
  await expect(output).toContainText("red");
  await expect(output.locator("a")).toHaveCount(0);
  await expect(app.getByTestId("tool-card").nth(1)).toContainText("‹U+202E›");
  // What could turn the page around is nowhere in it as it is.
  expect(await app.getByTestId("conversation").innerText()).not.toMatch(TRICKS);
  await harmless(app, foreign);
});

test("huge lines stay in their box, and the page stays quick @both", async ({ app, hub, model }) => {
  await openPi(app, hub);
  model.script.push(
    { tool: "bash", arguments: { command: "head -c 45000 /dev/zero | tr '\\0' x" } },
    { text: `${"y".repeat(300_000)}` },
    { text: `\`\`\`\n${"z".repeat(100_000)}\n\`\`\`\n\n${"> ".repeat(300)}deep\n\n${"*a ".repeat(2_000)}\n\nThe end.` },
  );
  await say(app, "shout");
  await expect(answer(app)).toContainText("yyyy");
  await idle(app);
  await say(app, "shout again");
  await expect(answer(app)).toContainText("The end.");
  await idle(app);
  const overflow = await app.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  expect(overflow).toBeLessThanOrEqual(0);
  expect(await app.getByTestId("conversation").evaluate((log) => log.scrollWidth - log.clientWidth)).toBeLessThanOrEqual(0);
  await say(app, "still there?");
  await expect(answer(app)).toContainText("of the scripted model");
});

test("names and questions that are markup are text too", async ({ app, hub }) => {
  const foreign = watchRequests(app, hub);
  const title = '<img src=x onerror="window.pwned=31">\u202E fleet';
  const session = await openPi(app, hub, { extensions: [extension("dialogs.ts")] });
  await hub.command("set_session_name", { session_id: session, name: title });
  await expect(app.getByTestId("session-header").getByRole("heading")).toContainText("<img src=x");
  await say(app, "/notify error <img src=x onerror=window.pwned=32> javascript:alert(1)");
  await expect(app.getByText("<img src=x onerror=window.pwned=32>").first()).toBeVisible();
  await hub.command("prompt", { session_id: session, message: "hello \u202E there" });
  await expect(answer(app)).toContainText("of the scripted model");
  await say(app, "/status <svg onload=window.pwned=33>");
  await expect(app.getByTestId("status-line")).toContainText("<svg onload=window.pwned=33>");
  await app.goto(hub.url);
  await expect(app.getByTestId("session-row").first()).toContainText("<img src=x");
  expect(await app.locator("body").innerText()).not.toMatch(TRICKS);
  expect(await app.title()).not.toMatch(TRICKS);
  await harmless(app, foreign);
});

/** Characters that turn text around or ring a bell. */
const TRICKS = /[\u202A-\u202E\u2066-\u2069\u0007\u001b]/;

const DANGEROUS = "script, iframe, img, svg:not(.icon):not([aria-hidden]), style, form, base, object, embed, details, math, [onerror], [onload], [ontoggle], a[href^='javascript' i]";

/** Requests to anywhere else than the hub. */
function watchRequests(page: Page, hub: Hub): string[] {
  const foreign: string[] = [];
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(hub.url) && !/^(data|blob):/.test(url)) foreign.push(url);
  });
  page.on("dialog", (dialog) => foreign.push(`dialog: ${dialog.message()}`));
  return foreign;
}

/** Nothing ran, nothing was asked for, and the page is as it was. */
async function harmless(page: Page, foreign: string[]): Promise<void> {
  expect(foreign).toEqual([]);
  expect(await page.evaluate(() => (window as { pwned?: number }).pwned)).toBeUndefined();
  await expect(page).toHaveTitle(/Quarterdeck$/);
  await expect(page.getByRole("navigation").first()).toBeVisible();
}
