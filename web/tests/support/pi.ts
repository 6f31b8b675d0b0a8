/** Tests with the real pi, whose model says what the test wants. */
import { resolve } from "node:path";

import { type ModelEntry, ScriptedModel } from "../../../clients/typescript/test/pi.ts";
import { test as base, type Hub, type Page } from "./test.ts";

export { expect, type Hub, type Page } from "./test.ts";
export { ScriptedModel };

const MODELS: ModelEntry[] = [
  { id: "scripted", name: "Scripted", input: ["text", "image"], contextWindow: 128_000, maxTokens: 8_192, reasoning: true },
  { id: "understudy", name: "Understudy", input: ["text"], contextWindow: 64_000, maxTokens: 8_192 },
];

export const test = base.extend<{ model: ScriptedModel }>({
  model: async ({}, use) => {
    const model = new ScriptedModel();
    await use(model);
    model.end();
  },

  settings: async ({ model }, use) => {
    await use({ ...(await model.start(MODELS)), PI_OFFLINE: "1" });
  },
});

/** A session of pi in the project's directory, on the screen. */
export async function openPi(page: Page, hub: Hub, config: Record<string, unknown> = {}): Promise<string> {
  const { session_id: session } = await hub.command<{ session_id: string }>("session.create", {
    config: { harness: "pi", cwd: hub.project, ...config },
  });
  await page.goto(`${hub.url}/s/${session}`);
  await base.expect(page.getByLabel("Message to the agent")).toBeVisible();
  return session;
}

/** An extension of pi for tests. */
export function extension(name: string): string {
  return resolve(import.meta.dirname, "../../../tests/extensions", name);
}

/** Something that has not happened yet. */
export function event(): { happened: Promise<void>; happen: () => void } {
  let happen = (): void => undefined;
  const happened = new Promise<void>((done) => (happen = done));
  return { happened, happen };
}
