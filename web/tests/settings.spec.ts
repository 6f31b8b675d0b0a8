/** Every section of the settings does what it says. */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { BINARY } from "./support/hub.ts";
import { expect, type Hub, type Page, signIn, test } from "./support/test.ts";

test("the list of settings leads to each section and back @both", async ({ app, hub, isMobile }) => {
  await app.goto(`${hub.url}/settings`);
  const list = app.getByRole("navigation", { name: "Settings" });
  await expect(list.getByRole("link")).toHaveCount(11);
  for (const title of ["Profile", "Appearance", "Notifications", "Phone", "Access tokens", "People and roles", "Runners", "Foreign hosts", "Audit trail", "Keyboard", "About"]) {
    await list.getByRole("link", { name: title }).click();
    await expect(app.getByRole("heading", { name: title, exact: true, level: isMobile ? 1 : 2 })).toBeVisible();
    await expect(app.getByText("Loading…")).toHaveCount(0);
    if (isMobile) await app.getByRole("link", { name: "All settings" }).click();
  }
});

test("profile: who one is, where one is signed in, and signing out", async ({ app, hub, browser }) => {
  const other = await (await browser.newContext()).newPage();
  await signIn(other, hub);
  await app.goto(`${hub.url}/settings/profile`);
  await expect(app.getByText("Owner: everything, people and machines included.")).toBeVisible();
  const logins = app.getByTestId("login-row");
  await expect(logins.filter({ hasText: "this one" })).toHaveCount(1);
  await logins.filter({ hasNotText: "this one" }).first().getByRole("button", { name: "Sign out" }).click();
  await app.getByRole("dialog").getByRole("button", { name: "Sign out" }).click();
  await expect(app.getByText("The browser is signed out.")).toBeVisible();
  await signedOut(other);
  await app.getByRole("button", { name: "Sign out" }).first().click();
  await signedOut(app);
  await app.goto(`${hub.url}/usage`);
  await signedOut(app);
  await other.context().close();
});

test("appearance: theme, density and motion change at once and stay", async ({ app, hub }) => {
  const session = await hub.demo();
  await app.goto(`${hub.url}/settings/appearance`);
  const page = app.locator("html");
  await expect(page).toHaveAttribute("data-theme", "light");
  await app.getByRole("radio", { name: "Dark" }).check();
  await expect(page).toHaveAttribute("data-theme", "dark");
  await app.getByRole("radio", { name: "Compact" }).check();
  await app.getByRole("switch", { name: "Reduce motion" }).click();
  await app.goto(`${hub.url}/s/${session}`);
  await expect(page).toHaveAttribute("data-theme", "dark");
  await expect(page).toHaveAttribute("data-density", "compact");
  await expect(page).toHaveAttribute("data-motion", "reduced");
  await app.goto(`${hub.url}/settings/appearance`);
  await app.getByRole("radio", { name: "Same as the system" }).check();
  await expect(page).toHaveAttribute("data-theme", "light");
  await app.emulateMedia({ colorScheme: "dark" });
  await expect(page).toHaveAttribute("data-theme", "dark");
});

test("tokens: one is made with what it may, works, and ends when revoked", async ({ app, hub }) => {
  await app.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  await app.goto(`${hub.url}/settings/tokens`);
  await app.getByRole("button", { name: "New token" }).click();
  await app.getByLabel("Name").fill("robot");
  await app.getByLabel("Valid for").selectOption("7 days");
  await app.getByLabel(/Work with sessions/).check();
  await app.getByRole("button", { name: "Make token" }).click();
  const token = await app.getByRole("textbox", { name: "Token" }).innerText();
  await app.getByRole("button", { name: "Copy token" }).click();
  await expect(app.getByRole("button", { name: "Copied" })).toBeVisible();
  expect(await app.evaluate(() => navigator.clipboard.readText())).toBe(token);
  expect(await permissionsOf(hub, token)).toEqual(["view", "operate"]);
  await app.getByRole("button", { name: "Done" }).click();
  await expect(app.getByTestId("token-row")).toContainText("robot");
  await app.getByRole("button", { name: "Revoke robot" }).click();
  await app.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await expect(app.getByText("No tokens")).toBeVisible();
  expect(await permissionsOf(hub, token)).toBe(401);
});

test("people: one is added, signs in, is given a role, is locked and removed", async ({ app, hub, browser }) => {
  await app.goto(`${hub.url}/settings/people`);
  await app.getByRole("button", { name: "Add a person" }).click();
  await app.getByLabel("Name").fill("zoe");
  await app.getByLabel(/Viewer/).check();
  await app.getByRole("button", { name: "Add", exact: true }).click();
  const password = await app.getByRole("textbox", { name: "New password" }).innerText();
  await app.getByRole("button", { name: "Done" }).click();

  const hers = await (await browser.newContext()).newPage();
  await passwordSignIn(hers, hub, password);
  await hers.goto(`${hub.url}/settings/profile`);
  await expect(hers.getByText("Viewer: sees everything, changes nothing.")).toBeVisible();
  await expect(hers.getByRole("navigation", { name: "Settings" }).getByText("People and roles")).toHaveCount(0);
  await hers.getByLabel("Current password").fill("wrong one");
  await hers.getByLabel("New password", { exact: true }).fill("another horse");
  await hers.getByLabel("New password again").fill("another horse");
  await hers.getByRole("button", { name: "Change password" }).click();
  await expect(hers.getByRole("alert")).toBeVisible();
  await hers.getByLabel("Current password").fill(password);
  await hers.getByRole("button", { name: "Change password" }).click();
  await signedOut(hers);
  await passwordSignIn(hers, hub, "another horse");

  await app.getByLabel("Role of zoe").selectOption("Operator");
  await expect(app.getByText("zoe is an operator now.")).toBeVisible();
  await app.getByRole("button", { name: "Lock zoe" }).click();
  await app.getByRole("dialog").getByRole("button", { name: "Lock" }).click();
  await expect(app.getByTestId("person-row")).toContainText("locked");
  await signedOut(hers);
  await app.getByRole("button", { name: "Unlock zoe" }).click();
  await expect(app.getByTestId("person-row")).not.toContainText("locked");
  await app.getByRole("button", { name: "New password for zoe" }).click();
  await app.getByRole("dialog").getByRole("button", { name: "Generate a new password" }).click();
  const given = await app.getByRole("textbox", { name: "New password" }).innerText();
  await app.getByRole("button", { name: "Done" }).click();
  await passwordSignIn(hers, hub, given);
  await app.getByRole("button", { name: "Remove zoe" }).click();
  await app.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await expect(app.getByTestId("person-row")).toHaveCount(0);
  await signedOut(hers);
  await hers.context().close();
});

test("runners: a second machine joins with the code shown, changes its key, and is revoked", async ({ app, hub }) => {
  await app.goto(`${hub.url}/settings/runners`);
  await app.getByRole("button", { name: "Add a runner" }).click();
  await expect(app.getByRole("img", { name: "The command as a QR code" })).toBeVisible();
  const code = await app.getByRole("textbox", { name: "Code" }).innerText();
  await expect(app.getByRole("textbox", { name: "Command" })).toContainText("qd runner join");
  const machine = new SecondMachine(hub, code);
  try {
    await expect(app.getByText("second has joined. It can run agents now.")).toBeVisible({ timeout: 30_000 });
    await app.getByRole("dialog").getByRole("button", { name: "Done" }).click();
    const row = app.getByTestId("runner-row").filter({ hasText: "second" });
    await expect(row).toContainText("online");
    await app.getByRole("button", { name: "Rotate the key of second" }).click();
    await app.getByRole("dialog").getByRole("button", { name: "Rotate the key" }).click();
    await expect(app.getByText("second is making a new key")).toBeVisible();
    await app.getByRole("button", { name: "Revoke second" }).click();
    await app.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
    await expect(row).toContainText("revoked");
  } finally {
    await machine.end();
  }
});

test("foreign hosts: one is added with a token shown once, and revoked", async ({ app, hub }) => {
  await app.goto(`${hub.url}/settings/hosts`);
  await expect(app.getByText("No foreign hosts")).toBeVisible();
  await app.getByRole("button", { name: "Add a host" }).click();
  const host = await app.getByRole("textbox", { name: "Host" }).innerText();
  await expect(app.getByRole("textbox", { name: "Token" })).not.toBeEmpty();
  await app.getByRole("dialog").getByRole("button", { name: "Done" }).click();
  const row = app.getByTestId("host-row").filter({ hasText: host });
  await app.getByRole("button", { name: `Revoke ${host}` }).click();
  await app.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await expect(row).toContainText("revoked");
  await app.getByRole("button", { name: `Forget ${host}` }).click();
  await app.getByRole("dialog").getByRole("button", { name: "Forget" }).click();
  await expect(row).toHaveCount(0);
});

test("audit trail: what was done is there, and can be narrowed", async ({ app, hub }) => {
  const session = await hub.demo("Audited");
  await hub.command("fs.write", { session_id: session, path: "audited.txt", content: "hello" });
  await hub.command("host.bash", { session_id: session, command: "echo hello" });
  await hub.rest("POST", "/api/people", { username: "zoe", password: "correct horse", role: "viewer" });
  await app.goto(`${hub.url}/settings/audit`);
  const rows = app.getByTestId("audit-row");
  await expect(rows.filter({ hasText: "zoe" }).first()).toBeVisible();
  await app.getByLabel("What").selectOption("Tool calls");
  await expect(rows).toHaveCount(2);
  await app.getByLabel("Tool", { exact: true }).fill("rpc.fs.write");
  await expect(rows).toHaveCount(1);
  await expect(rows).toContainText("Audited");
  await app.getByLabel("Session", { exact: true }).selectOption("Audited");
  await expect(rows).toHaveCount(1);
  await app.getByLabel("Tool", { exact: true }).fill("");
  await app.getByLabel("What").selectOption("People");
  await expect(app.getByText("Nothing here")).toBeVisible();
});

test("keyboard help lists the shortcuts, and about tells versions", async ({ app, hub }) => {
  await app.goto(`${hub.url}/settings/keyboard`);
  await expect(app.locator("kbd").first()).toBeVisible();
  await app.goto(`${hub.url}/`);
  await app.keyboard.press("?");
  await expect(app.getByRole("dialog")).toContainText(/shortcuts/i);
  await app.goto(`${hub.url}/settings/about`);
  await expect(app.getByText(hub.url, { exact: true })).toBeVisible();
  await expect(app.getByRole("textbox", { name: "Versions" })).toContainText(/hub .*\d+\.\d+\.\d+/);
  const path = await app.getByRole("link", { name: /OpenAPI/ }).getAttribute("href");
  expect((await app.request.get(`${hub.url}${path}`)).ok()).toBe(true);
});

test("a phone is signed in by the link of the code, once", async ({ app, hub, browser }) => {
  await app.goto(`${hub.url}/settings/phone`);
  await app.getByRole("button", { name: "Show the code" }).click();
  await expect(app.getByRole("img", { name: "Link that signs a phone in, as a QR code" })).toBeVisible();
  const link = await app.getByRole("textbox", { name: "Link" }).innerText();
  const phone = await (await browser.newContext({ viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true })).newPage();
  await phone.goto(link);
  await expect(phone.getByRole("navigation", { name: "Pages" })).toBeVisible();
  await expect(phone).toHaveURL(`${hub.url}/`);
  const stranger = await (await browser.newContext()).newPage();
  await stranger.goto(link);
  await stranger.goto(`${hub.url}/`);
  await signedOut(stranger);
  await app.getByRole("button", { name: "Make a new code" }).click();
  await expect(app.getByRole("textbox", { name: "Link" })).not.toHaveText(link);
  await phone.context().close();
  await stranger.context().close();
});

/** What a token may, or the status it is refused with. */
async function permissionsOf(hub: Hub, token: string): Promise<string[] | number> {
  const answer = await fetch(`${hub.url}/api/me`, { headers: { authorization: `Bearer ${token}` } });
  return answer.ok ? ((await answer.json()) as { permissions: string[] }).permissions : answer.status;
}

async function signedOut(page: Page): Promise<void> {
  await expect(page.getByRole("heading", { name: "Sign in by link" })).toBeVisible();
}

async function passwordSignIn(page: Page, hub: Hub, password: string): Promise<void> {
  await page.goto(`${hub.url}/welcome`);
  await page.getByLabel("Name").fill("zoe");
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { name: "Fleet" })).toBeVisible();
}

/** Another machine, which joins with a code. */
class SecondMachine {
  readonly #directory = mkdtempSync(join(tmpdir(), "qd-second-"));
  readonly #child;

  constructor(hub: Hub, code: string) {
    const words = ["runner", "join", hub.url, "--code", code, "--name", "second", "--data-dir", join(this.#directory, "data")];
    const environment = { ...hub.environment, HOME: this.#directory, XDG_RUNTIME_DIR: this.#directory };
    this.#child = spawn(BINARY, words, { env: { ...environment, QD_DATA_DIR: join(this.#directory, "data") }, stdio: "ignore" });
  }

  async end(): Promise<void> {
    const child = this.#child;
    const exit = new Promise((resolve) => child.once("exit", resolve));
    if (child.exitCode === null && child.signalCode === null) {
      child.kill("SIGKILL");
      await exit;
    }
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
