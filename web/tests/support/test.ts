/** What every test starts with: a hub of its own, and a browser that is signed in. */
import { test as base, expect, type Page } from "@playwright/test";

import { Proxy } from "../../../clients/typescript/test/server.ts";
import { Hub } from "./hub.ts";

export { expect, type Page };
export { Hub };

interface Fixtures {
  /** Settings of the hub, as environment variables; set with `test.use`. */
  settings: Record<string, string>;
  hub: Hub;
  /** A network between browser and hub that can be cut. */
  network: Network;
  /** A page that is signed in and shows the fleet. */
  app: Page;
}

/** The way to the hub, which a test can cut and restore. */
export class Network {
  readonly #proxy: Proxy;
  #address = "";

  constructor(hub: Hub) {
    this.#proxy = new Proxy(() => hub.port);
  }

  async open(): Promise<void> {
    this.#address = (await this.#proxy.listen()).replace("ws:", "http:");
  }

  get url(): string {
    return this.#address;
  }

  /** How many were opened so far. */
  get connections(): number {
    return this.#proxy.connections;
  }

  /** Nothing passes any more. */
  cut(): void {
    this.#proxy.isDown = true;
    this.#proxy.cut();
  }

  restore(): void {
    this.#proxy.isDown = false;
  }

  /** Breaks what is open; new connections are as ever. */
  interrupt(): void {
    this.#proxy.cut();
  }

  /** What is open carries nothing any more, and nobody is told. */
  stall(): void {
    this.#proxy.stall();
  }

  end(): void {
    this.#proxy.end();
  }
}

export const test = base.extend<Fixtures>({
  settings: [{}, { option: true }],

  hub: async ({ settings }, use) => {
    const hub = new Hub(settings);
    await hub.start();
    await use(hub);
    await hub.end();
  },

  network: async ({ hub }, use) => {
    const network = new Network(hub);
    await network.open();
    await use(network);
    network.end();
  },

  app: async ({ page, hub }, use) => {
    const problems = watch(page);
    await signIn(page, hub);
    await use(page);
    expect(problems, "the browser complained").toEqual([]);
  },
});

/** Signs a page in, with a link as a person would; `at` is another way to the same hub. */
export async function signIn(page: Page, hub: Hub, at: string = hub.url): Promise<void> {
  const link = new URL(await hub.loginLink());
  await page.goto(at + link.pathname + link.search);
  await expect(page.getByRole("navigation").first()).toBeVisible();
}

/** Collects what a page should never say: errors nobody caught, and what the policy of the page forbids. */
export function watch(page: Page): string[] {
  const problems: string[] = [];
  page.on("pageerror", (error) => problems.push(`error: ${error.message}`));
  page.on("console", (message) => {
    const text = message.text();
    if (message.type() === "error" && !/Failed to load resource|WebSocket connection/.test(text)) {
      problems.push(`console: ${text}`);
    }
  });
  return problems;
}

/** The texts of the bubbles of a role, from top to bottom, as a person reads them. */
export async function bubbles(page: Page, role: "user" | "assistant"): Promise<string[]> {
  return page.locator(`[data-testid="message"][data-role="${role}"]`).allInnerTexts();
}
