/** An answer that comes at 200 pieces a second, from a real pi: the page keeps up and stays smooth. */
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";

import { isPiInstalled, ScriptedModel } from "../../clients/typescript/test/pi.ts";
import { expect, Hub, signIn, test } from "../tests/support/test.ts";
import { figure } from "./figures.ts";
import { Frames } from "./frames.ts";

const PER_SECOND = 200;
const SECONDS = 10;
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
  test.skip(!isPiInstalled, "pi is not installed: tests/agents/install.sh");
  const installed = new ScriptedModel();
  const settings = await installed.start();
  const model = createServer((request, response) => {
    request.resume();
    request.once("end", () => void stream(response));
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
    const before = deltas;
    const frames = await Frames.record(browser, page);
    const from = Date.now();
    await new Promise((resolve) => setTimeout(resolve, (SECONDS - 2) * 1000));
    const { count, distance, work, cpu } = await frames.end();
    const seconds = (Date.now() - from) / 1000;
    figure("streaming: pieces that came", (deltas - before) / seconds, "/s");
    figure("streaming: frames", count / seconds, "/s");
    figure("streaming: work per frame, p50", work.p50, "ms");
    figure("streaming: work per frame, p95", work.p95, "ms", 16);
    figure("streaming: work per frame on a core, p95", cpu.p95, "ms");
    figure("streaming: from frame to frame, p50 (60 Hz is 16.7)", distance.p50, "ms");
    figure("streaming: from frame to frame, p95", distance.p95, "ms", 17);
    figure("streaming: from frame to frame, worst", distance.most, "ms");
    await page.context().close();
  } finally {
    await hub.end();
    model.closeAllConnections();
    model.close();
    installed.end();
  }
});

/** Writes the text again and again, four characters at a time, at the pace wanted. */
async function stream(response: ServerResponse): Promise<void> {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const chunk = (delta: object, finish: string | null) => {
    const choices = [{ index: 0, delta, finish_reason: finish }];
    response.write(`data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "scripted", choices })}\n\n`);
  };
  const from = performance.now();
  for (let sent = 0; sent < PER_SECOND * SECONDS && !response.destroyed; ) {
    const due = Math.floor(((performance.now() - from) / 1000) * PER_SECOND);
    for (; sent <= due; sent += 1) {
      const at = (sent * 4) % TEXT.length;
      chunk({ content: TEXT.slice(at, at + 4) }, null);
    }
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  chunk({}, "stop");
  response.end("data: [DONE]\n\n");
}
