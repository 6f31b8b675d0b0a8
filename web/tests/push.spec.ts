/** The app on a phone: it is installed, starts without a network, and tells its person when an agent needs them. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

import { type Address, PushService, type Pushed } from "./support/pushService.ts";
import { talk } from "./support/prompting.ts";
import { expect, type Hub, type Page, signIn, test, watch } from "./support/test.ts";

test.describe("notifications", () => {
  test.use({ settings: { QD_PUSH_LOOPBACK: "on" }, permissions: ["notifications"] });
  let service: PushService;

  test.beforeEach(async ({ context }) => {
    service = new PushService();
    await service.start();
    await service.use(context);
  });

  test.afterEach(() => service.end());

  test("are turned on, tried out, chosen and turned off @both", async ({ app, hub }) => {
    await turnOn(app, hub);
    await app.getByRole("button", { name: "Send a test" }).click();
    await expect(app.getByText("A notification is on its way.")).toBeVisible();
    await expect.poll(() => service.pushes.length).toBe(1);
    expect(service.authorizations[0]).toMatch(/^vapid t=.+, ?k=.+/);
    const device = await Device.of(app, hub);
    await device.deliver(service.pushes[0]);
    await expect.poll(() => device.shown()).toMatchObject([{ title: "Notifications work" }]);

    const done = app.getByRole("switch", { name: "Done" });
    await done.click();
    await expect(done).toHaveAttribute("aria-checked", "false");
    await app.reload();
    await expect(done).toHaveAttribute("aria-checked", "false");
    await app.getByRole("button", { name: "Turn off" }).click();
    await expect(app.getByRole("button", { name: "Turn on notifications" })).toBeVisible();
    expect(await subscriptions(hub)).toEqual([]);
  });

  test("of an approval says nothing of it, and is answered by its button", async ({ app, hub }) => {
    await turnOn(app, hub);
    const config = { harness: "demo", cwd: hub.project, title: "Secret plan", gate: "ask" };
    const { session_id } = await hub.command<{ session_id: string }>("session.create", { config });
    const device = await Device.of(app, hub);
    await app.goto("about:blank");
    const written = hub.command("fs.write", { session_id, path: "treasure.txt", content: "hello" });
    const approval = await coming(service, "approval");
    expect(JSON.stringify(approval)).not.toMatch(/Secret|treasure|hello/);
    await device.deliver(approval);
    await expect.poll(() => device.shown()).toMatchObject([{ title: "An agent asks for approval", actions: ["Approve", "Deny"] }]);
    expect(existsSync(join(hub.project, "treasure.txt"))).toBe(false);
    await device.click(approval, "approve");
    await written;
    expect(readFileSync(join(hub.project, "treasure.txt"), "utf8")).toBe("hello");
    await expect.poll(() => device.shown()).toEqual([]);
    // Its leave was for once: who has the token can do nothing more with it.
    const again = await fetch(`${hub.url}/api/push/answer`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ token: approval.answer_token, decision: "approve" }),
    });
    expect(again.ok).toBe(false);
  });

  test("of an approval denies it by its other button", async ({ app, hub }) => {
    await turnOn(app, hub);
    const config = { harness: "demo", cwd: hub.project, title: "No plan", gate: "ask" };
    const { session_id } = await hub.command<{ session_id: string }>("session.create", { config });
    const device = await Device.of(app, hub);
    await app.goto("about:blank");
    const written = hub.command("fs.write", { session_id, path: "no.txt", content: "hello" }).then(() => "done", () => "denied");
    const approval = await coming(service, "approval");
    await device.deliver(approval);
    await expect.poll(() => device.shown()).toHaveLength(1);
    await device.click(approval, "deny");
    expect(await written).toBe("denied");
    expect(existsSync(join(hub.project, "no.txt"))).toBe(false);
  });

  test("tell what they are about where the person allows it, and of questions and failures", async ({ app, hub }) => {
    await turnOn(app, hub);
    const content = app.getByRole("switch", { name: "Show what it is about" });
    await content.click();
    await expect(content).toHaveAttribute("aria-checked", "true");
    const session = await hub.demo("Colours of the ship");
    await app.goto("about:blank");
    await talk(hub, session, "/question");
    const question = await coming(service, "question");
    expect(JSON.stringify(question)).toContain("Which colour should the ship have?");
    const failing = await hub.demo("Failing");
    await talk(hub, failing, "/error");
    const failed = await coming(service, "failed");
    expect(failed).toMatchObject({ session_id: failing, title: "Failing" });
  });

  test.describe("of what is done", () => {
    test.use({ settings: { QD_PUSH_LOOPBACK: "on", QD_PUSH_DONE_SECONDS: "3" } });

    test("come when a turn that took its time is over, and not for a short one", async ({ app, hub }) => {
      await turnOn(app, hub);
      const short = await hub.demo("Short");
      const long = await hub.demo("Long");
      const device = await Device.of(app, hub);
      await app.goto("about:blank");
      await talk(hub, short, "/text");
      await talk(hub, long, "/question");
      const asked = Date.now();
      const { request_id } = await coming(service, "question");
      await expect.poll(() => Date.now() - asked).toBeGreaterThan(3_000);
      await hub.command("input_response", { session_id: long, request_id, value: "blue" });
      const done = await coming(service, "done");
      expect(done).toMatchObject({ session_id: long });
      expect(JSON.stringify(done)).not.toContain("Long");
      await device.deliver(done);
      await expect.poll(() => device.shown()).toMatchObject([{ title: "An agent is done" }]);
      expect(service.pushes.filter((push) => push.session_id === short)).toEqual([]);
    });
  });

  test("go on when the push service gives the device another address, as they were chosen", async ({ app, hub }) => {
    await turnOn(app, hub);
    const done = app.getByRole("switch", { name: "Done" });
    await done.click();
    await expect(done).toHaveAttribute("aria-checked", "false");
    const [before] = await subscriptions(hub);
    const device = await Device.of(app, hub);
    await device.moves(before?.endpoint ?? "", service.another());
    await expect.poll(async () => (await subscriptions(hub)).map(({ endpoint }) => endpoint)).toEqual([service.another().endpoint]);
    const [after] = await subscriptions(hub);
    expect(after).toMatchObject({ label: before?.label, topics: before?.topics, content: before?.content });
    expect(after?.topics).not.toContain("done");
    const session = await hub.demo("Moved");
    await app.goto("about:blank");
    await talk(hub, session, "/question");
    expect(await coming(service, "question")).toMatchObject({ session_id: session });
    expect(service.addresses).toEqual([new URL(service.another().endpoint).pathname]);
  });

  test("are not sent while the person looks at the session", async ({ app, hub }) => {
    await turnOn(app, hub);
    const session = await hub.demo("Looked at");
    const other = await hub.demo("Not looked at");
    await app.goto(`${hub.url}/s/${session}`);
    await expect(app.getByLabel("Message to the agent")).toBeVisible();
    await talk(hub, session, "/question");
    await expect(app.getByTestId("question-card")).toBeVisible();
    await talk(hub, other, "/question");
    // Pushes go in their order: when the second is there, the first was not sent.
    await coming(service, "question");
    expect(service.pushes.filter((push) => push.session_id === session)).toEqual([]);
    expect(service.pushes.filter((push) => push.session_id === other)).toHaveLength(1);
  });

  test("lead to their session, and go when it is answered elsewhere", async ({ app, hub }) => {
    await turnOn(app, hub);
    const session = await hub.demo("Go there");
    const device = await Device.of(app, hub);
    await app.goto("about:blank");
    await talk(hub, session, "/question");
    const question = await coming(service, "question");
    await device.deliver(question);
    await expect.poll(() => device.shown()).toHaveLength(1);
    await app.goto(`${hub.url}/usage`);
    await expect(app.getByRole("heading", { name: "Usage" })).toBeVisible();
    await device.click(question, "");
    await expect(app).toHaveURL(`${hub.url}/s/${session}`);
    await app.getByTestId("question-card").getByRole("button", { name: "red" }).click();
    await expect(app.getByTestId("question-card")).toHaveCount(0);
    await expect.poll(() => device.shown()).toEqual([]);
  });
});

test("the app starts without a network, and says so @both", async ({ page, hub, network, context }) => {
  const problems = watch(page);
  await signIn(page, hub, network.url);
  await page.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
  await page.reload();
  await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
  network.cut();
  await context.setOffline(true);
  await page.goto(`${network.url}/`);
  await expect(page.getByRole("navigation").first()).toBeVisible();
  await expect(page.getByTestId("connection")).toBeVisible();
  await context.setOffline(false);
  network.restore();
  await expect(page.getByTestId("connection")).toHaveCount(0);
  await expect(page.getByRole("heading", { name: "Fleet" })).toBeVisible();
  expect(problems.filter((problem) => !/net::ERR|Failed to fetch/.test(problem))).toEqual([]);
});

test("the browser finds the app fit to be installed @phone", async ({ app, hub }) => {
  const browser = await app.context().newCDPSession(app);
  await app.evaluate(() => navigator.serviceWorker.ready.then(() => undefined));
  const { errors, data, url } = (await browser.send("Page.getAppManifest")) as { errors: unknown[]; data?: string; url: string };
  expect(url).toBe(`${hub.url}/manifest.webmanifest`);
  expect(errors).toEqual([]);
  const { installabilityErrors } = await browser.send("Page.getInstallabilityErrors");
  // A private window is never offered an installation; that is all the browser may have against it.
  expect(installabilityErrors.filter((error) => error.errorId !== "in-incognito")).toEqual([]);
  const manifest = JSON.parse(data ?? "{}") as { icons: { src: string; type: string; sizes: string }[]; display: string; shortcuts: { url: string }[] };
  expect(manifest.display).toBe("standalone");
  for (const icon of manifest.icons) {
    const answer = await app.request.get(hub.url + icon.src);
    expect(answer.headers()["content-type"], icon.src).toBe(icon.type);
    if (icon.type === "image/png") {
      const bytes = await answer.body();
      expect(`${bytes.readUInt32BE(16)}x${bytes.readUInt32BE(20)}`, icon.src).toBe(icon.sizes);
    }
  }
  for (const { url: path } of manifest.shortcuts) {
    await app.goto(hub.url + path);
    await expect(app.getByRole("heading", { level: 1 })).toBeVisible();
  }
});

test("the offer to install the app waits in the settings, and is taken there", async ({ app }) => {
  await app.getByRole("link", { name: "Settings" }).first().click();
  await app.getByRole("link", { name: /^Phone/ }).click();
  const button = app.getByRole("button", { name: "Install Quarterdeck" });
  await expect(app.getByText("This browser offers it in its menu")).toBeVisible();
  // A window of a test is never made this offer; it is made as Chromium makes it.
  const isKept = await app.evaluate(() => {
    const offer = new Event("beforeinstallprompt", { cancelable: true });
    const prompt = (): Promise<void> => {
      document.body.dataset["prompted"] = "yes";
      return Promise.resolve();
    };
    Object.assign(offer, { prompt, userChoice: Promise.resolve({ outcome: "accepted" }) });
    return !dispatchEvent(offer);
  });
  expect(isKept).toBe(true);
  await button.click();
  await expect(app.locator("body[data-prompted=yes]")).toBeAttached();
  await expect(button).toHaveCount(0);
  await app.evaluate(() => dispatchEvent(new Event("appinstalled")));
  await expect(app.getByText("It is installed on this device.")).toBeVisible();
});

test("a device without leave says how to give it", async ({ app, hub }) => {
  await app.goto(`${hub.url}/settings/notifications`);
  await expect(app.getByTestId("push-reason").or(app.getByRole("button", { name: "Turn on notifications" }))).toBeVisible();
});

async function turnOn(page: Page, hub: Hub): Promise<void> {
  await page.goto(`${hub.url}/settings/notifications`);
  await page.getByRole("button", { name: "Turn on notifications" }).click();
  await expect(page.getByRole("switch", { name: "Approvals" })).toHaveAttribute("aria-checked", "true");
}

interface Subscription {
  endpoint: string;
  label: string;
  topics: string[];
  content: boolean;
}

async function subscriptions(hub: Hub): Promise<Subscription[]> {
  return (await hub.rest<{ subscriptions: Subscription[] }>("GET", "/api/push")).subscriptions;
}

/** The first push of a kind. */
async function coming(service: PushService, kind: string): Promise<Pushed> {
  const find = () => service.pushes.find((push) => push.kind === kind);
  await expect.poll(() => find()?.kind, { timeout: 20_000 }).toBe(kind);
  return find() as Pushed;
}

interface Shown {
  title: string;
  body: string;
  actions: string[];
}

/** The service worker of a browser, as its push service and its person's finger see it. */
class Device {
  readonly #browser;
  readonly #page: Page;
  readonly #registration: string;
  readonly #origin: string;

  private constructor(page: Page, browser: Awaited<ReturnType<ReturnType<Page["context"]>["newCDPSession"]>>, registration: string, origin: string) {
    this.#page = page;
    this.#browser = browser;
    this.#registration = registration;
    this.#origin = origin;
  }

  static async of(page: Page, hub: Hub): Promise<Device> {
    const browser = await page.context().newCDPSession(page);
    const registration = new Promise<string>((resolve) => {
      browser.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
        const [first] = registrations;
        if (first) resolve(first.registrationId);
      });
    });
    await browser.send("ServiceWorker.enable");
    return new Device(page, browser, await registration, hub.url);
  }

  async deliver(push: Pushed | undefined): Promise<void> {
    await this.#browser.send("ServiceWorker.deliverPushMessage", {
      origin: this.#origin,
      registrationId: this.#registration,
      data: JSON.stringify(push),
    });
  }

  async shown(): Promise<Shown[]> {
    return this.#worker().evaluate(async () => {
      const { registration } = globalThis as unknown as { registration: ServiceWorkerRegistration };
      const all = (await registration.getNotifications()) as (Notification & { actions: { title: string }[] })[];
      return all.map(({ title, body, actions }) => ({ title, body, actions: actions.map((action) => action.title) }));
    });
  }

  /** Its push service has another address for it from now on, and says so. */
  async moves(oldEndpoint: string, to: Address): Promise<void> {
    await this.#worker().evaluate(
      ({ oldEndpoint, to }) => {
        const { endpoint, keys } = to;
        const subscription = { endpoint, toJSON: () => ({ endpoint, keys }) } as unknown as PushSubscription;
        PushManager.prototype.subscribe = () => Promise.resolve(subscription);
        const Changed = (globalThis as unknown as { ExtendableEvent: new (name: string) => Event }).ExtendableEvent;
        const change = Object.assign(new Changed("pushsubscriptionchange"), { oldSubscription: { endpoint: oldEndpoint } });
        globalThis.dispatchEvent(change);
      },
      { oldEndpoint, to },
    );
  }

  /** A tap on a notification, or on one of its buttons. */
  async click(push: Pushed, action: string): Promise<void> {
    await this.#worker().evaluate(
      async ({ tag, action }) => {
        const worker = globalThis as unknown as { registration: ServiceWorkerRegistration; dispatchEvent(event: Event): boolean };
        const [notification] = await worker.registration.getNotifications({ tag });
        const Clicked = (globalThis as unknown as { NotificationEvent: new (name: string, init: object) => Event }).NotificationEvent;
        worker.dispatchEvent(new Clicked("notificationclick", { notification, action }));
      },
      { tag: push.tag ?? "", action },
    );
  }

  #worker() {
    const [worker] = this.#page.context().serviceWorkers();
    if (!worker) throw new Error("The service worker is gone.");
    return worker;
  }
}
