/** Real pi with a model that has prices and says what each answer used. */
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";

import { ScriptedModel } from "../../../clients/typescript/test/pi.ts";


/** Dollars for a million tokens. */
const PRICE = { input: 100, output: 500, cacheRead: 0, cacheWrite: 0 };
/** What every answer uses. */
const USED = { prompt_tokens: 1_000, completion_tokens: 200, total_tokens: 1_200 };
/** So each answer costs 1,000 × $100 and 200 × $500 for a million. */
export const COST_OF_ANSWER = (USED.prompt_tokens * PRICE.input + USED.completion_tokens * PRICE.output) / 1e6;

/** One answer: words, or a tool to use; one that `hangs` never ends. */
export interface PricedAnswer {
  text?: string;
  thinking?: string;
  tool?: { name: string; arguments: object };
  hangs?: boolean;
}

export class PricedModel {
  readonly script: PricedAnswer[] = [];
  readonly #name: string;
  readonly #price: object;
  readonly #installed = new ScriptedModel();
  #count = 0;
  readonly #server = createServer((request, response) => {
    request.resume();
    request.once("end", () => this.#say(response, this.script.shift() ?? { text: "That was worth its money." }));
  });

  constructor(name = "scripted", price: object = PRICE) {
    this.#name = name;
    this.#price = price;
  }

  /** Starts it and gives the settings of a hub whose pi uses it. */
  async start(): Promise<Record<string, string>> {
    const settings = await this.#installed.start();
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    const baseUrl = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`;
    const model = { id: this.#name, name: this.#name, input: ["text"], contextWindow: 128_000, maxTokens: 8_192, cost: this.#price, reasoning: true };
    const provider = { baseUrl, api: "openai-completions", apiKey: "scripted", models: [model] };
    const agent = join(this.#installed.directory, "agent");
    writeFileSync(join(agent, "models.json"), JSON.stringify({ providers: { scripted: provider } }));
    writeFileSync(join(agent, "settings.json"), JSON.stringify({ defaultProvider: "scripted", defaultModel: this.#name }));
    return { ...settings, PI_OFFLINE: "1" };
  }

  end(): void {
    this.#server.closeAllConnections();
    this.#server.close();
    this.#installed.end();
  }

  #say(response: ServerResponse, { text, thinking, tool, hangs }: PricedAnswer): void {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const chunk = (part: object) => {
      const body = { id: "c", object: "chat.completion.chunk", created: 1, model: this.#name, ...part };
      response.write(`data: ${JSON.stringify(body)}\n\n`);
    };
    const say = (delta: object, finish: string | null = null) => chunk({ choices: [{ index: 0, delta, finish_reason: finish }] });
    if (thinking !== undefined) say({ reasoning_content: thinking });
    if (text !== undefined) say({ content: text });
    if (tool !== undefined) {
      this.#count += 1;
      const call = { name: tool.name, arguments: JSON.stringify(tool.arguments) };
      say({ tool_calls: [{ index: 0, id: `call_${this.#count}`, type: "function", function: call }] });
    }
    if (hangs) return;
    say({}, tool === undefined ? "stop" : "tool_calls");
    chunk({ choices: [], usage: USED });
    response.end("data: [DONE]\n\n");
  }
}
