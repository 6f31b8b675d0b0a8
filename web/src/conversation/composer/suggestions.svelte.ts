import type { SlashCommand } from "@quarterdeck/client";
import { app } from "../../lib/app.svelte.ts";
import { errorText } from "../../lib/format.ts";
import { type Completion, completeCommand, completeFile, pathsOf, type Trigger } from "./completion.ts";

/** Names are asked for again after this long: files come and go while an agent works. */
const FRESH_MS = 20_000;

/** What the session offers after `/` and `@`. */
export class Suggestions {
  readonly sessionId: string;
  items = $state.raw<Completion[]>([]);
  isLoading = $state(false);
  error = $state<string | undefined>();
  #commands: Promise<SlashCommand[]> | undefined;
  #paths: { at: number; list: Promise<string[]> } | undefined;
  #asked = 0;

  constructor(sessionId: string) {
    this.sessionId = sessionId;
  }

  clear(): void {
    this.#asked += 1;
    this.items = [];
    this.error = undefined;
    this.isLoading = false;
  }

  async update(trigger: Trigger): Promise<void> {
    const mine = ++this.#asked;
    this.isLoading = this.items.length === 0;
    try {
      const items = await this.#find(trigger);
      if (mine !== this.#asked) return;
      this.items = items;
      this.error = undefined;
    } catch (error) {
      if (mine !== this.#asked) return;
      this.items = [];
      this.error = errorText(error);
    }
    this.isLoading = false;
  }

  async #find(trigger: Trigger): Promise<Completion[]> {
    if (trigger.kind === "command") return completeCommand(await this.#allCommands(), trigger.query);
    const directory = trigger.query.slice(0, trigger.query.lastIndexOf("/") + 1);
    const known = completeFile(await this.#allPaths(), trigger.query);
    if (known.length > 0 || directory === "") return known;
    return completeFile(await this.#list(directory), trigger.query);
  }

  #allCommands(): Promise<SlashCommand[]> {
    this.#commands ??= app.client.call("get_commands", {}, { sessionId: this.sessionId }).then(
      (data) => data.commands,
      (error: unknown) => {
        this.#commands = undefined;
        throw error;
      },
    );
    return this.#commands;
  }

  #allPaths(): Promise<string[]> {
    if (!this.#paths || Date.now() - this.#paths.at > FRESH_MS) {
      const list = app.client
        .call("fs.tree", { depth: 6, limit: 2000, actor: "web" }, { sessionId: this.sessionId })
        .then((data) => pathsOf(data.entries));
      this.#paths = { at: Date.now(), list };
      list.catch(() => (this.#paths = undefined));
    }
    return this.#paths.list;
  }

  /** A directory deeper than the tree goes. */
  async #list(directory: string): Promise<string[]> {
    const path = directory.replace(/\/$/, "");
    const data = await app.client.call("fs.list", { path, actor: "web" }, { sessionId: this.sessionId });
    return data.entries.map((entry) => `${directory}${entry.name}${entry.is_dir ? "/" : ""}`);
  }
}
