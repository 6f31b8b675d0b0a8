/** Every page at the desk and on the phone, in light and in dark: readable, usable by all, and nothing hidden. */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type { BrowserContextOptions, Locator } from "@playwright/test";

import { talk } from "./support/prompting.ts";
import { expect, type Hub, type Page, signIn, test, watch } from "./support/test.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const DESK: BrowserContextOptions = { viewport: { width: 1440, height: 900 } };
const PHONE: BrowserContextOptions = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };
const SECTIONS = ["profile", "appearance", "notifications", "phone", "tokens", "people", "runners", "hosts", "audit", "keyboard", "about"];

for (const [place, options] of [["desk", DESK], ["phone", PHONE]] as const) {
  for (const colorScheme of ["light", "dark"] as const) {
    test(`every page, ${place}, ${colorScheme}`, async ({ browser, hub }) => {
      test.setTimeout(240_000);
      const filled = await fill(hub);
      const context = await browser.newContext({ ...options, colorScheme, reducedMotion: "reduce", bypassCSP: true });
      const page = await context.newPage();
      const problems = watch(page);
      const findings: string[] = [];
      await page.goto(`${hub.url}/welcome`);
      await expect(page.getByRole("heading", { name: "Sign in by link" })).toBeVisible();
      findings.push(...(await look(page, "signed out")));
      await signIn(page, hub);
      for (const { path, ready } of pages(filled)) {
        await page.goto(hub.url + path);
        await ready(page);
        findings.push(...(await look(page, path.replace(/[a-z0-9]{12,}/g, "…"))));
      }
      expect(findings).toEqual([]);
      expect(problems).toEqual([]);
      await context.close();
    });
  }
}

test("dialogs and the palette are as readable as pages @both", async ({ app, hub, isMobile }) => {
  const { tools } = await fill(hub);
  await app.goto(`${hub.url}/s/${tools}`);
  await expect(app.getByTestId("message").first()).toBeVisible();
  const findings: string[] = [];
  const open: [string, () => Promise<void>][] = [
    ["palette", () => app.keyboard.press("Control+k")],
    ["help", () => app.keyboard.press("?")],
  ];
  for (const [name, press] of open) {
    await app.getByTestId("conversation").focus();
    await press();
    await expect(app.getByRole("dialog").first()).toBeVisible();
    findings.push(...(await axe(app, name)));
    await app.keyboard.press("Escape");
    await expect(app.getByRole("dialog")).toHaveCount(0);
  }
  if (isMobile) {
    await app.goto(`${hub.url}/`);
    await app.getByRole("button", { name: "More" }).click();
    await expect(app.getByRole("dialog")).toBeVisible();
    findings.push(...(await axe(app, "more")));
  }
  for (const [path, button] of [["runners", "Add a runner"], ["tokens", "New token"], ["people", "Add a person"]] as const) {
    await app.goto(`${hub.url}/settings/${path}`);
    await app.getByRole("button", { name: button }).click();
    await expect(app.getByRole("dialog")).toBeVisible();
    findings.push(...(await axe(app, button)));
  }
  expect(findings).toEqual([]);
});

test("the keyboard reaches what matters, and one sees where it is", async ({ app, hub }) => {
  const { tools, question } = await fill(hub);
  await app.goto(`${hub.url}/`);
  await expect(app.getByTestId("session-row").first()).toBeVisible();
  expect(await tabbed(app, [/New session/, /Approvals/, /History/, /Search sessions/, /Sort by/, /Reading files/])).toEqual([]);
  await app.goto(`${hub.url}/s/${tools}`);
  await expect(app.getByTestId("message").first()).toBeVisible();
  expect(await tabbed(app, [/Conversation/, /Files/, /Changes/, /Terminal/, /Message to the agent/])).toEqual([]);
  await app.goto(`${hub.url}/approvals`);
  await expect(app.getByTestId("question-card").first()).toBeVisible();
  expect(await tabbed(app, [/red/, /green/, /blue/])).toEqual([]);
  // And without a mouse the question is answered.
  await app.getByTestId("question-card").getByRole("button", { name: "green" }).focus();
  await app.keyboard.press("Enter");
  await expect.poll(async () => (await hub.messages(question)).at(-1)?.parts[0]?.text).toContain("You chose green");
});

test("who wants no motion gets none", async ({ app, hub }) => {
  await app.emulateMedia({ reducedMotion: "reduce" });
  const session = await hub.demo();
  await app.goto(`${hub.url}/s/${session}`);
  await hub.command("prompt", { session_id: session, message: "/long 3000" });
  await expect(app.getByTestId("message").last()).toContainText("word1");
  const moving = await app.evaluate(() =>
    document.getAnimations().filter((animation) => {
      const timing = animation.effect?.getComputedTiming();
      return animation.playState === "running" && (timing?.iterations === Infinity || Number(timing?.duration) > 20);
    }).length,
  );
  expect(moving).toBe(0);
});

interface Filled {
  tools: string;
  question: string;
  run: string;
}

/** A hub with something on every page. */
async function fill(hub: Hub): Promise<Filled> {
  const git = (...words: string[]) => execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@b", ...words], { cwd: hub.project });
  writeFileSync(join(hub.project, "ship.ts"), "export const masts = 2;\nexport const sails = 5;\n");
  writeFileSync(join(hub.project, "README.md"), "# The ship\n\nIt floats.\n");
  git("init", "-q");
  git("add", ".");
  git("commit", "-qm", "The ship");
  writeFileSync(join(hub.project, "ship.ts"), "export const masts = 3;\nexport const sails = 5;\nexport const isAfloat = true;\n");
  const tools = await hub.demo("Reading files");
  await talk(hub, tools, "# A heading\n\n- one\n- `two`\n\n| a | b |\n|---|---|\n| 1 | 2 |", "/thinking", "/tools", "/error");
  const question = await hub.demo("Choosing a colour");
  await talk(hub, question, "/question");
  const closed = await hub.demo("Long done");
  await hub.command("session.close", { session_id: closed });
  const config = { harness: "pty", cwd: hub.project, command: ["bash", "--norc", "-c", "printf '\\033[31mred\\033[0m and plain\\n'; sleep 600"], title: "A run" };
  const { session_id: run } = await hub.command<{ session_id: string }>("session.create", { config });
  return { tools, question, run };
}

type Ready = (page: Page) => Promise<void>;

function pages({ tools, run }: Filled): { path: string; ready: Ready }[] {
  const shows = (find: (page: Page) => Locator): Ready => (page) => expect(find(page).first()).toBeVisible();
  const heading = (name: string) => shows((page) => page.getByRole("heading", { name }));
  return [
    { path: "/", ready: shows((page) => page.getByTestId("session-row")) },
    { path: "/new", ready: heading("New session") },
    { path: `/s/${tools}`, ready: shows((page) => page.getByText("Both tools are done")) },
    { path: "/approvals", ready: shows((page) => page.getByTestId("question-card")) },
    { path: `/s/${run}`, ready: shows((page) => page.locator(".xterm")) },
    { path: `/s/${tools}/terminal`, ready: shows((page) => page.locator(".xterm")) },
    { path: `/s/${tools}/files`, ready: shows((page) => page.getByText("ship.ts")) },
    { path: `/s/${tools}/files/ship.ts`, ready: shows((page) => page.getByText("isAfloat")) },
    { path: `/s/${tools}/changes`, ready: shows((page) => page.getByText("ship.ts")) },
    { path: "/history", ready: shows((page) => page.getByTestId("past-session")) },
    { path: "/history?q=answer", ready: shows((page) => page.getByTestId("search-hit")) },
    { path: "/history?view=files", ready: shows((page) => page.getByText(/No session files|session file/)) },
    { path: "/usage", ready: shows((page) => page.getByRole("img", { name: /per day/ })) },
    { path: "/settings", ready: heading("Settings") },
    ...SECTIONS.filter((section) => section !== "audit").map((section) => ({ path: `/settings/${section}`, ready: settled })),
    { path: "/settings/audit", ready: shows((page) => page.getByTestId("audit-row")) },
    { path: "/welcome", ready: heading("Welcome") },
    { path: "/no/such/page", ready: shows((page) => page.getByText(/no such page|nothing here|not found/i)) },
  ];
}

async function settled(page: Page): Promise<void> {
  await expect(page.locator(".content h2").first()).toBeAttached();
  await expect(page.getByText("Loading…")).toHaveCount(0);
}

async function look(page: Page, name: string): Promise<string[]> {
  let misshapen: string[] = [];
  // What comes late moves what is there: the shape counts when it has come to rest.
  await expect(async () => {
    misshapen = await shape(page, name);
    expect(misshapen).toEqual([]);
  })
    .toPass({ timeout: 5_000 })
    .catch(() => undefined);
  return [...(await axe(page, name)), ...misshapen];
}

interface Finding {
  id: string;
  impact?: string | null;
  nodes: { target: unknown[]; failureSummary?: string }[];
}

/** What axe finds that keeps people out. */
async function axe(page: Page, name: string): Promise<string[]> {
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: { run(root: Document, options: object): Promise<{ violations: Finding[] }> } };
    return (await axe.run(document, { resultTypes: ["violations"] })).violations.map(({ id, impact, nodes }) => ({ id, impact, nodes }));
  });
  return found
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${name}: ${id}: ${nodes.slice(0, 3).map((node) => `${node.target.join(" ")} (${node.failureSummary?.split("\n")[1]?.trim()})`).join("; ")}`);
}

/** Nothing is wider than the screen, and the bar at the bottom covers nothing that one has scrolled to. */
async function shape(page: Page, name: string): Promise<string[]> {
  return page.evaluate((name) => {
    const findings: string[] = [];
    const over = document.documentElement.scrollWidth - innerWidth;
    if (over > 0) findings.push(`${name}: ${over} px wider than the screen`);
    const bar = document.querySelector('nav[aria-label="Pages"]')?.getBoundingClientRect();
    // At the desk the pages are listed at the side.
    if (!bar || bar.height === 0 || bar.top < innerHeight / 2) return findings;
    for (const element of document.querySelectorAll<HTMLElement>("body *")) {
      if (element.scrollHeight > element.clientHeight && /auto|scroll/.test(getComputedStyle(element).overflowY)) element.scrollTop = 1e6;
    }
    scrollTo(0, 1e6);
    const reached = [...document.querySelectorAll<HTMLElement>("main a, main button, main input, main select, main textarea")];
    const covered = reached.filter((element) => {
      const box = element.getBoundingClientRect();
      return box.height > 0 && element.checkVisibility({ visibilityProperty: true }) && box.bottom > bar.top + 1 && box.top < innerHeight;
    });
    for (const element of covered.slice(0, 3)) findings.push(`${name}: the bar covers ${element.textContent?.trim() || element.ariaLabel || element.outerHTML.slice(0, 120)}`);
    return findings;
  }, name);
}

/** Presses Tab over the page; gives those of the names that were not met, or were met without a ring around them. */
async function tabbed(page: Page, names: RegExp[]): Promise<string[]> {
  const missing = new Set(names);
  const invisible: string[] = [];
  await page.locator("body").evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  for (let presses = 0; presses < 80 && missing.size > 0; presses += 1) {
    await page.keyboard.press("Tab");
    const focused = await page.evaluate(() => {
      const element = document.activeElement as HTMLElement;
      const label = element.id === "" ? "" : document.querySelector(`label[for="${CSS.escape(element.id)}"]`)?.textContent;
      const name = [element.ariaLabel, label, element.getAttribute("placeholder"), element.textContent].filter(Boolean).join(" ");
      // The ring is on the thing itself, or on what stands for it.
      const rings = [element, element.parentElement, element.parentElement?.parentElement].map((one) => {
        const styles = one ? [getComputedStyle(one), getComputedStyle(one, "::after")] : [];
        return styles.some((style) => (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none");
      });
      // After the last thing comes the browser's own bar.
      return { name: name.trim().slice(0, 100), hasRing: element === document.body || rings.some(Boolean) };
    });
    if (!focused.hasRing) invisible.push(`no ring: ${focused.name}`);
    for (const name of missing) if (name.test(focused.name)) missing.delete(name);
  }
  return [...[...missing].map(String), ...invisible];
}
