/** The first five minutes: sign in by the link, add a machine, start the demo. No manual. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";

import { BINARY } from "./support/hub.ts";
import { expect, test, watch } from "./support/test.ts";

test("three steps: the link, another machine, the demo @both", async ({ page, hub }) => {
  const problems = watch(page);
  await page.goto(hub.url);
  await expect(page.getByRole("heading", { name: "Quarterdeck" })).toBeVisible();
  await expect(page.getByText("prints a link when it starts")).toBeVisible();

  await page.goto(await hub.loginLink());
  const steps = page.getByRole("region", { name: "Three steps to your first agent" }).getByRole("listitem");
  await expect(steps).toHaveCount(3);
  await expect(steps.nth(0)).toContainText("You are signed in as owner");
  await expect(steps.nth(0).getByRole("img", { name: "done" })).toBeVisible();
  await expect(steps.nth(1)).toContainText(`${hostname()} is ready`);

  await steps.nth(1).getByRole("button", { name: "Add another machine" }).click();
  const command = steps.nth(1).getByText(/^qd runner join/);
  await expect(command).toBeVisible();
  const machine = joined(await command.innerText(), hub.environment);
  try {
    await expect(steps.nth(1)).toContainText("are ready");
  } finally {
    machine.end();
  }

  await steps.nth(2).getByRole("button", { name: "Start the demo" }).click();
  await expect(page.getByTestId("message").filter({ hasText: "I am the demo agent" })).toBeVisible();
  expect(problems).toEqual([]);
});

test("a link works once, and the page says so", async ({ page, hub }) => {
  const link = await hub.loginLink();
  await page.goto(link);
  await expect(page.getByRole("heading", { name: "Fleet" })).toBeVisible();
  await page.context().clearCookies();
  await page.goto(link);
  await expect(page.getByText("That link was already used or has expired.")).toBeVisible();
  await expect(page.getByText("qd login-link")).toBeVisible();
  await expect(page.getByRole("heading", { name: "Fleet" })).toHaveCount(0);
});

test("a person signs in with a password and out again, and lands where they wanted to go @both", async ({ page, hub, isMobile }) => {
  await hub.rest("POST", "/api/people", { username: "ada", password: "correct horse battery", role: "operator" });
  await page.goto(`${hub.url}/history`);
  await page.getByLabel("Name").fill("ada");
  await page.getByLabel("Password").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("alert")).toHaveText("Wrong name or password.");
  await page.getByLabel("Password").fill("correct horse battery");
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { name: "History" })).toBeVisible();

  await page.getByRole("button", { name: isMobile ? "More" : "ada" }).click();
  await page.getByText("Sign out").click();
  await expect(page.getByRole("heading", { name: "Sign in with a password" })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("heading", { name: "Sign in with a password" })).toBeVisible();
  expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain("correct horse");
});

/** Runs the command the page shows, as on another machine. */
function joined(command: string, environment: Record<string, string>): { end: () => void } {
  const directory = mkdtempSync(join(tmpdir(), "qd-web-joined-"));
  const words = command.trim().split(/\s+/).slice(1).map((word) => word.replace(/^'|'$/g, ""));
  const env = { ...environment, HOME: directory, XDG_RUNTIME_DIR: directory, QD_DATA_DIR: join(directory, "data") };
  const child: ChildProcess = spawn(BINARY, [...words, "--name", "second"], { env, stdio: ["ignore", "ignore", "inherit"] });
  return {
    end: () => {
      child.kill("SIGKILL");
      rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
