/** A slow hub: its answers come to the page when the test lets them. */
import type { Page } from "@playwright/test";

/** What the page asked for. */
export interface Asked {
  id?: string;
  cmd?: string;
  path?: string;
}

/** Tells of each answer what it answers, and how to let it pass; what is not passed never comes. */
export async function holdAnswers(page: Page, decide: (asked: Asked, pass: () => void) => void): Promise<void> {
  await page.routeWebSocket(/\/ws\/mux/, (browser) => {
    const hub = browser.connectToServer();
    const asked = new Map<string, Asked>();
    browser.onMessage((message) => {
      const frame = read(message);
      if (frame.id !== undefined && frame.cmd !== undefined) asked.set(frame.id, frame);
      hub.send(message);
    });
    hub.onMessage((message) => {
      const known = asked.get(read(message).id ?? "");
      if (known) decide(known, () => browser.send(message));
      else browser.send(message);
    });
  });
}

function read(message: string | Buffer): Asked {
  return typeof message === "string" ? (JSON.parse(message) as Asked) : {};
}
