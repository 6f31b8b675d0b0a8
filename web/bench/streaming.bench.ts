/** An answer that comes at 200 pieces a second, from a real pi: the page keeps up and stays smooth. */
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";

import type { Page } from "@playwright/test";

import { ScriptedModel } from "../../clients/typescript/test/pi.ts";
import { expect, Hub, signIn, test } from "../tests/support/test.ts";
import { atLeast, figure } from "./figures.ts";
import { Frames } from "./frames.ts";

const PER_SECOND = 200;
const SECONDS = 8;
/** What a model would write: prose, lists, a table, code. */
const TEXT = `## What I found

The function **reads** the file \`ship.ts\` twice; the second time it is not needed. See [the note](https://example.com/x).

- first the masts are counted
- then the sails, each by _its own_ name

| part | count |
|------|-------|
| mast | 3     |

\`\`\`ts
export function masts(ship: Ship): number {
  return ship.masts.filter((mast) => mast.isUp).length;
}
\`\`\`

`;

test("200 pieces a second", async ({ browser }) => {
  const installed = new ScriptedModel();
  const settings = await installed.start();
  const sent: Sent = { text: "", isEnough: false };
  const model = createServer((request, response) => {
    request.resume();
    request.once("end", () => void stream(response, sent));
  }).listen(0, "127.0.0.1");
  await once(model, "listening");
  const baseUrl = `http://127.0.0.1:${(model.address() as AddressInfo).port}/v1`;
  const provider = { baseUrl, api: "openai-completions", apiKey: "scripted", models: [{ id: "scripted", name: "Fast", input: ["text"], contextWindow: 128_000, maxTokens: 8_192 }] };
  writeFileSync(join(installed.directory, "agent", "models.json"), JSON.stringify({ providers: { scripted: provider } }));
  const hub = new Hub(settings);
  try {
    await hub.start();
    const config = { harness: "pi", cwd: hub.project };
    const { session_id } = await hub.command<{ session_id: string }>("session.create", { config });
    const page = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
    let deltas = 0;
    page.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => (deltas += String(payload).split('"delta"').length - 1)));
    await signIn(page, hub);
    await page.goto(`${hub.url}/s/${session_id}`);
    await expect(page.getByLabel("Message to the agent")).toBeVisible();
    await hub.command("prompt", { session_id, message: "Tell me everything." });
    await expect(page.locator('[data-testid="message"][data-role="assistant"]')).toContainText("What I found");
    const frames = await Frames.record(browser, page);
    const before = { deltas, at: performance.now() };
    await new Promise((resolve) => setTimeout(resolve, SECONDS * 1000));
    const pieces = (deltas - before.deltas) / ((performance.now() - before.at) / 1000);
    const { rate, distance, work, cpu } = await frames.end();
    sent.isEnough = true;
    atLeast("streaming: pieces that came", pieces, "/s", PER_SECOND * 0.98);
    figure("streaming: frames", rate, "/s");
    figure("streaming: work per frame, p50", work.p50, "ms");
    figure("streaming: work per frame, p95", work.p95, "ms", 16);
    figure("streaming: work per frame on a core, p95", cpu.p95, "ms");
    figure("streaming: from frame to frame, p50 (60 Hz is 16.7)", distance.p50, "ms");
    figure("streaming: from frame to frame, p95", distance.p95, "ms", 17);
    figure("streaming: from frame to frame, worst", distance.most, "ms");
    await isWhole(page, sent);
    await page.context().close();
  } finally {
    await hub.end();
    model.closeAllConnections();
    model.close();
    installed.end();
  }
});

interface Sent {
  text: string;
  isEnough: boolean;
}

/** All of it was shown, and what was drawn piece by piece is what is drawn when the whole is there at once. */
async function isWhole(page: Page, sent: Sent): Promise<void> {
  const answer = page.locator('[data-testid="message"][data-role="assistant"][data-idx]');
  const drawn = () =>
    answer.locator(".markdown").evaluate((markdown) =>
      [...markdown.querySelectorAll(".block")].map((block) => {
        const plain = block.cloneNode(true) as Element;
        // Colours come when the worker has found them.
        for (const code of plain.querySelectorAll("pre > code")) code.textContent = code.textContent;
        return plain.innerHTML;
      }),
    );
  await expect(answer).toBeVisible();
  const grown = await drawn();
  expect(grown.filter((block) => block.includes("What I found"))).toHaveLength(sent.text.length / TEXT.length);
  await page.reload();
  await expect(answer).toBeVisible();
  expect(grown).toEqual(await drawn());
}

/** Writes the text again and again, four characters at a time, at the pace wanted, until it was enough. */
async function stream(response: ServerResponse, sent: Sent): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const chunk = (delta: object, finish: string | null) => {
    const choices = [{ index: 0, delta, finish_reason: finish }];
    response.write(`data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "scripted", choices })}\n\n`);
  };
  const from = performance.now();
  for (let count = 0; !sent.isEnough && !response.destroyed; ) {
    const due = Math.floor(((performance.now() - from) / 1000) * PER_SECOND);
    for (; count <= due; count += 1) {
      const content = pieceOf(count);
      sent.text += content;
      chunk({ content }, null);
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  // It ends where the text does, so that how often it was written can be counted.
  for (const times = Math.ceil(sent.text.length / TEXT.length); sent.text.length < times * TEXT.length; ) {
    const content = TEXT.slice(sent.text.length % TEXT.length).slice(0, 4);
    sent.text += content;
    chunk({ content }, null);
  }
  chunk({}, "stop");
  response.end("data: [DONE]\n\n");
}

/** The piece of this number of the text that goes on for ever. */
function pieceOf(number: number): string {
  const at = (number * 4) % TEXT.length;
  return (TEXT + TEXT).slice(at, at + 4);
}
