/** What a page may do, and what it keeps. */
import { createServer, type Server } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";

import { talk } from "./support/prompting.ts";
import { expect, type Hub, type Page, signIn, test, watch } from "./support/test.ts";

const POLICY = [
  "default-src 'self'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  "font-src 'self'",
  "connect-src 'self'",
  "frame-src 'none'",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
  "worker-src 'self'",
  "manifest-src 'self'",
].join("; ");

test("every answer forbids inline script and foreign origins", async ({ page: app, hub }) => {
  await signIn(app, hub);
  for (const path of ["/", "/s/none", "/settings/people", "/api/me", "/sw.js", "/manifest.webmanifest", "/no/such/page", "/api/nothing"]) {
    const answer = await app.request.get(hub.url + path);
    expect(answer.headers()["content-security-policy"], path).toBe(POLICY);
    expect(answer.headers()["x-content-type-options"], path).toBe("nosniff");
    expect(answer.headers()["referrer-policy"], path).toBe("no-referrer");
  }
  // And the browser keeps to it: script that gets into the page does not run, and cannot ask elsewhere.
  const tried = await app.evaluate(async () => {
    const element = document.createElement("script");
    element.textContent = "globalThis.wasRun = true";
    document.body.append(element);
    element.remove();
    const image = document.createElement("img");
    image.setAttribute("onerror", "globalThis.wasRun = true");
    image.src = "data:,";
    document.body.append(image);
    const foreign = await fetch("http://localhost:1/").then(() => "asked", () => "refused");
    image.remove();
    return { wasRun: "wasRun" in globalThis, foreign };
  });
  expect(tried).toEqual({ wasRun: false, foreign: "refused" });
});

test("no page breaks the policy, and nothing secret is kept where script can read it", async ({ page, hub, context }) => {
  const problems = watch(page);
  const password = "correct horse battery";
  await hub.rest("POST", "/api/people", { username: "ada", password, role: "owner" });
  await page.goto(`${hub.url}/welcome`);
  await page.getByLabel("Name").fill("ada");
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("heading", { name: "Fleet" })).toBeVisible();
  const secrets = [password, hub.token, ...(await walk(page, hub))];

  const cookies = await context.cookies();
  expect(cookies.length).toBeGreaterThan(0);
  for (const cookie of cookies) {
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
    secrets.push(cookie.value);
  }
  expect(await page.evaluate(() => document.cookie)).toBe("");
  const kept = await page.evaluate(async () => {
    const databases = await indexedDB.databases();
    const addresses: string[] = [];
    for (const name of await caches.keys()) {
      for (const request of await (await caches.open(name)).keys()) addresses.push(new URL(request.url).pathname);
    }
    return { local: JSON.stringify({ ...localStorage }), session: JSON.stringify({ ...sessionStorage }), databases, addresses };
  });
  for (const secret of secrets) {
    expect(kept.local).not.toContain(secret);
    expect(kept.session).not.toContain(secret);
  }
  expect(kept.local + kept.session).not.toMatch(/bearer|password|"token/i);
  expect(kept.databases).toEqual([]);
  expect(kept.addresses.filter((path) => /^\/(api|ws|auth)/.test(path))).toEqual([]);
  expect(problems).toEqual([]);
});

test("a foreign page can neither frame the app, nor read it, nor connect to it", async ({ page: app, hub }) => {
  await signIn(app, hub);
  const stranger = await foreignPage();
  try {
    // The cookie is there; the browser must not send it along.
    await app.goto(stranger.url);
    const tried = await app.evaluate(async (target) => {
      const ask = (path: string, init?: RequestInit) =>
        fetch(target + path, { credentials: "include", ...init }).then((answer) => String(answer.status), () => "refused");
      const socket = await new Promise<string>((resolve) => {
        const connection = new WebSocket(`${target.replace("http", "ws")}/ws/mux`);
        connection.onopen = () => resolve("open");
        connection.onerror = () => resolve("refused");
      });
      const frame = document.createElement("iframe");
      frame.src = `${target}/`;
      const loaded = new Promise((resolve) => (frame.onload = resolve));
      document.body.append(frame);
      await loaded;
      return { read: await ask("/api/me"), write: await ask("/api/logins/links", { method: "POST" }), socket };
    }, hub.url);
    expect(tried).toEqual({ read: "refused", write: "refused", socket: "refused" });
    const framed = () => app.frames().find((frame) => frame !== app.mainFrame())?.url();
    await expect.poll(framed).toMatch(/^$|^chrome-error:/);
    // A form posted from there is somebody without a cookie.
    const before = await hub.rest<{ people: unknown[] }>("GET", "/api/people");
    await app.evaluate((target) => {
      const form = document.createElement("form");
      form.method = "post";
      form.action = `${target}/api/logins/links`;
      document.body.append(form);
      form.submit();
    }, hub.url);
    await expect(app.locator("body")).not.toContainText("/login?code=");
    expect(await hub.rest("GET", "/api/people")).toEqual(before);
  } finally {
    stranger.server.close();
  }
});

test("an answer of the API is not shown as a page, and an export runs nothing", async ({ app, hub }) => {
  const session = await hub.demo();
  await talk(hub, session, "<script>document.title='run'</script><img src=x onerror=alert(1)>");
  await app.goto(`${hub.url}/s/${session}`);
  await expect(app.getByTestId("message").first()).toContainText("<script>");
  const file = await app.request.get(`${hub.url}/api/sessions/${session}/export?format=html`);
  expect(file.headers()["content-disposition"]).toMatch(/^attachment/);
  expect(await file.text()).not.toContain("<script>document");
});

/** Goes everywhere a person goes and does what makes secrets; gives those that were shown. */
async function walk(page: Page, hub: Hub): Promise<string[]> {
  const session = await hub.demo("Walked over");
  await talk(hub, session, "/tools", "/question");
  for (const path of ["/", "/new", `/s/${session}`, `/s/${session}/files`, `/s/${session}/changes`, `/s/${session}/terminal`, "/approvals", "/history?q=tools", "/usage"]) {
    await page.goto(hub.url + path);
    await expect(page.locator("main, .page, [data-testid]").first()).toBeVisible();
    await expect(page.getByText("Loading…")).toHaveCount(0);
  }
  const secrets: string[] = [];
  for (const section of ["profile", "appearance", "notifications", "audit", "keyboard", "about", "people"]) {
    await page.goto(`${hub.url}/settings/${section}`);
    await expect(page.getByText("Loading…")).toHaveCount(0);
  }
  await page.goto(`${hub.url}/settings/phone`);
  await page.getByRole("button", { name: "Show the code" }).click();
  secrets.push(new URL(await page.getByRole("textbox", { name: "Link" }).innerText()).searchParams.get("code") ?? "");
  await page.goto(`${hub.url}/settings/runners`);
  await page.getByRole("button", { name: "Add a runner" }).click();
  secrets.push(await page.getByRole("textbox", { name: "Code" }).innerText());
  await page.goto(`${hub.url}/settings/tokens`);
  await page.getByRole("button", { name: "New token" }).click();
  await page.getByLabel("Name").fill("robot");
  await page.getByRole("button", { name: "Make token" }).click();
  secrets.push(await page.getByRole("textbox", { name: "Token" }).innerText());
  await page.getByRole("button", { name: "Done" }).click();
  expect(secrets.every((secret) => secret.length > 5)).toBe(true);
  return secrets;
}

/** A page of another origin, on this machine. */
async function foreignPage(): Promise<{ url: string; server: Server }> {
  const server = createServer((_request, response) => response.setHeader("content-type", "text/html").end("<!doctype html><title>Elsewhere</title>"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `http://localhost:${(server.address() as AddressInfo).port}/`, server };
}
