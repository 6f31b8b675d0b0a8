/** What the first page and a conversation load, and how soon they can be used. */
import { gzipSync } from "node:zlib";
import type { Browser, Page } from "@playwright/test";

import { expect, Hub, test } from "../tests/support/test.ts";
import { figure, median } from "./figures.ts";
import { type FrameFigures, Frames } from "./frames.ts";
import { fillSession } from "./session.ts";

const ROUNDS = 7;
const MESSAGES = 10_000;

test("script and style, and time to interactive", async ({ browser }) => {
  const hub = new Hub();
  await hub.start();
  try {
    for (let number = 0; number < 30; number += 1) await hub.demo(`Session ${number}`);
    const session = await hub.demo("The one");
    await fillSession(hub, session, 20);

    figure("/: script and style, gzip", (await loaded(browser, hub, "/", '[data-testid="session-row"]')) / 1000, "kB", 120);
    figure("/s/ID: script and style, gzip", (await loaded(browser, hub, `/s/${session}`, '[data-testid="message"]')) / 1000, "kB", 120);

    const times: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) times.push(await interactive(browser, hub, "/", '[data-testid="session-row"]'));
    figure("/: interactive, nothing cached, median", median(times), "ms", 1000);
    figure("/: interactive, nothing cached, worst", Math.max(...times), "ms");
  } finally {
    await hub.end();
  }
});

test("a session of 10,000 messages opens", async ({ browser }) => {
  const hub = new Hub();
  await hub.start();
  try {
    const session = await hub.demo("Very long");
    const last = await fillSession(hub, session, MESSAGES);
    const clicks: number[] = [];
    const starts: number[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      clicks.push(await opened(browser, hub, last));
      starts.push(await interactive(browser, hub, `/s/${session}`, `[data-testid="message"][data-idx="${last}"]`));
    }
    figure("10,000 messages: from the click to the last message, median", median(clicks), "ms", 500);
    figure("10,000 messages: from the click to the last message, worst", Math.max(...clicks), "ms");
    figure("10,000 messages: page loaded there, nothing cached, median", median(starts), "ms");
    const { work, cpu } = await scrolled(browser, hub, session, last);
    figure("10,000 messages: scrolling up, work per frame, p95", work.p95, "ms", 16);
    figure("10,000 messages: scrolling up, work per frame on a core, p95", cpu.p95, "ms");
  } finally {
    await hub.end();
  }
});

async function fresh(browser: Browser, hub: Hub): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, serviceWorkers: "block" });
  const link = new URL(await hub.loginLink());
  // Signed in without having loaded anything.
  await context.request.get(hub.url + link.pathname + link.search, { maxRedirects: 0 });
  return context.newPage();
}

/** Bytes of script and style until the thing wanted is on the screen. */
async function loaded(browser: Browser, hub: Hub, path: string, selector: string): Promise<number> {
  const page = await fresh(browser, hub);
  const files = new Map<string, Promise<number>>();
  page.on("response", (response) => {
    if (!/\.(js|css)$/.test(new URL(response.url()).pathname)) return;
    files.set(response.url(), response.body().then((body) => gzipSync(body).length));
  });
  await page.goto(hub.url + path);
  await page.locator(selector).first().waitFor();
  const counted = [...files.values()];
  const sizes = await Promise.all(counted);
  await page.context().close();
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** When the thing wanted was on the screen and the page had nothing more to do, in ms after the navigation began. */
async function interactive(browser: Browser, hub: Hub, path: string, selector: string): Promise<number> {
  const page = await fresh(browser, hub);
  await page.addInitScript((selector) => {
    const seen = globalThis as unknown as { shownAt?: number; busyUntil: number };
    seen.busyUntil = 0;
    new PerformanceObserver((list) => {
      for (const task of list.getEntries()) seen.busyUntil = Math.max(seen.busyUntil, task.startTime + task.duration);
    }).observe({ type: "longtask", buffered: true });
    const look = () => {
      if (document.querySelector(selector)) requestAnimationFrame(() => requestAnimationFrame(() => (seen.shownAt = performance.now())));
      else requestAnimationFrame(look);
    };
    look();
  }, selector);
  await page.goto(hub.url + path);
  await page.waitForFunction(() => "shownAt" in globalThis);
  // A long task that comes right after is part of it: two quiet moments are waited for.
  await page.evaluate(() => new Promise<void>((resolve) => requestIdleCallback(() => requestIdleCallback(() => resolve()))));
  const at = await page.evaluate(() => {
    const seen = globalThis as unknown as { shownAt: number; busyUntil: number };
    return Math.max(seen.shownAt, seen.busyUntil);
  });
  await page.context().close();
  return at;
}

/** From the click on its row to the last message on the screen. */
async function opened(browser: Browser, hub: Hub, last: number): Promise<number> {
  const page = await fresh(browser, hub);
  await page.goto(hub.url);
  const row = page.getByTestId("session-row").getByRole("link", { name: "Very long" });
  await row.waitFor();
  // Most likely pages are fetched ahead when there is nothing else to do, as they are before a person clicks.
  await page.waitForLoadState("networkidle");
  await page.evaluate((last) => {
    const seen = globalThis as unknown as { openedAfter?: number };
    addEventListener(
      "click",
      () => {
        const from = performance.now();
        const look = () => {
          const isThere = document.querySelector(`[aria-busy="false"] [data-testid="message"][data-idx="${last}"]`);
          if (isThere) requestAnimationFrame(() => (seen.openedAfter = performance.now() - from));
          else requestAnimationFrame(look);
        };
        look();
      },
      { capture: true, once: true },
    );
  }, last);
  await row.click();
  await page.waitForFunction(() => "openedAfter" in globalThis);
  const time = await page.evaluate(() => (globalThis as unknown as { openedAfter: number }).openedAfter);
  await page.context().close();
  return time;
}

/** Wheels up through the conversation, older pages loading on the way. */
async function scrolled(browser: Browser, hub: Hub, session: string, last: number): Promise<FrameFigures> {
  const page = await fresh(browser, hub);
  await page.goto(`${hub.url}/s/${session}`);
  await expect(page.locator(`[data-testid="message"][data-idx="${last}"]`)).toBeVisible();
  await page.mouse.move(900, 400);
  const frames = await Frames.record(browser, page);
  for (let turn = 0; turn < 150; turn += 1) await page.mouse.wheel(0, -400);
  const figures = await frames.end();
  await page.context().close();
  return figures;
}
