/** A real hub with its own data for one test, which can be killed and started again in its place. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

/** The binary under test, with the app in it: `make web`, then `cargo build`. */
export const BINARY = process.env["QD_BINARY"] ?? resolve(import.meta.dirname, "../../../target/debug/qd");

export class Hub {
  readonly directory = mkdtempSync(join(tmpdir(), "qd-web-"));
  /** Where sessions of the test work. */
  readonly project = join(this.directory, "project");
  readonly settings: Record<string, string>;
  token = "";
  port = 0;
  #child: ChildProcess | undefined;

  constructor(settings: Record<string, string> = {}) {
    this.settings = settings;
    mkdirSync(this.project);
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error("The hub does not run");
    return pid;
  }

  get environment(): Record<string, string> {
    return {
      PATH: process.env["PATH"] ?? "",
      HOME: this.directory,
      XDG_RUNTIME_DIR: this.directory,
      QD_DATA_DIR: join(this.directory, "data"),
      QD_PI_COMMAND: "/no/pi/here",
      SHELL: "/bin/bash",
      TERM: "xterm-256color",
      ...this.settings,
    };
  }

  /** Starts it, on the same port as before if it ran. */
  async start(): Promise<void> {
    if (!existsSync(BINARY)) throw new Error(`${BINARY} is missing: run \`make web\` and \`cargo build\` first`);
    const words = ["up", "--ready-json", "--listen", `127.0.0.1:${this.port}`];
    const child = spawn(BINARY, words, { env: this.environment, stdio: ["ignore", "pipe", "inherit"] });
    this.#child = child;
    const [line] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
    const ready = JSON.parse(line) as { token: string; url: string };
    this.token = ready.token;
    this.port = Number(new URL(ready.url).port);
  }

  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null) return;
    const exit = once(child, "exit");
    child.kill(signal);
    await exit;
  }

  async end(): Promise<void> {
    await this.kill();
    // Shells write their history when they end, which may be while we clear up.
    for (let attempt = 1; existsSync(this.directory); attempt += 1) {
      try {
        rmSync(this.directory, { recursive: true, force: true });
      } catch (error) {
        if (attempt === 50) throw error;
        await new Promise((done) => setTimeout(done, 100));
      }
    }
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
