/** A real hub with its own data for one test, which can be killed and started again in its place. */
import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { BINARY, HubProcess } from "../../../clients/typescript/test/process.ts";

export { BINARY };

export class Hub extends HubProcess {
  /** Where sessions of the test work. */
  readonly project = join(this.directory, "project");

  constructor(settings: Record<string, string> = {}) {
    super("qd-web", { SHELL: "/bin/bash", TERM: "xterm-256color", ...settings });
    mkdirSync(this.project);
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Calls the REST interface as the owner. */
  async rest<T>(method: string, path: string, body?: unknown): Promise<T> {
    // The hub closes connections nobody uses, perhaps just when the next request is on its way.
    const headers: Record<string, string> = { authorization: `Bearer ${this.token}`, connection: "close" };
    const init: RequestInit = { method, headers };
    if (body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(body);
    }
    const answer = await fetch(this.url + path, init);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return JSON.parse(text === "" ? "null" : text) as T;
  }

  /** Runs a command of the canonical protocol as the owner; gives its data. */
  async command<T = Record<string, never>>(cmd: string, parameters: Record<string, unknown> = {}): Promise<T> {
    const answer = await this.rest<{ success: boolean; data?: T; error?: string }>("POST", "/api/commands", {
      cmd,
      ...parameters,
    });
    if (!answer.success) throw new Error(`${cmd}: ${answer.error ?? "failed"}`);
    return answer.data as T;
  }

  /** A session of the demo agent in the project's directory. */
  async demo(title?: string): Promise<string> {
    const config = { harness: "demo", cwd: this.project, ...(title === undefined ? {} : { title }) };
    const { session_id } = await this.command<{ session_id: string }>("session.create", { config });
    return session_id;
  }

  /** A session of the real pi there; for tests of `support/pi.ts`. */
  async pi(): Promise<string> {
    const config = { harness: "pi", cwd: this.project };
    const { session_id } = await this.command<{ session_id: string }>("session.create", { config });
    return session_id;
  }

  /** Every message the hub has of a session. */
  async messages(sessionId: string): Promise<StoredMessage[]> {
    let all: StoredMessage[] = [];
    let before: number | undefined;
    do {
      const page = await this.command<{ messages: StoredMessage[]; before?: number }>("get_messages", {
        session_id: sessionId,
        ...(before === undefined ? {} : { before }),
      });
      all = [...page.messages, ...all];
      before = page.before;
    } while (before !== undefined);
    return all;
  }

  /** A link that signs a browser in, once. */
  async loginLink(): Promise<string> {
    const { url } = await this.rest<{ url: string }>("POST", "/api/logins/links");
    return url;
  }
}

export interface StoredMessage {
  id: string;
  idx: number;
  role: string;
  parts: { type: string; text?: string }[];
}
