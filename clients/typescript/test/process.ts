/** A real `qd up` for tests, with its own data, which can be killed and started again in its place. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";

/** The binary under test; `cargo build` puts it there. */
export const BINARY = process.env["QD_BINARY"] ?? resolve(import.meta.dirname, "../../../target/debug/qd");

/** How often its directory is tried to be removed while something still writes there. */
const REMOVE_TRIES_MAX = 60;
const REMOVE_PAUSE_MS = 50;

/** What it says when it is ready. */
export interface Ready {
  token: string;
  url: string;
  pi_server_url: string;
}

export class HubProcess {
  readonly directory: string;
  readonly settings: Record<string, string>;
  token = "";
  /** Where it listens; once it ran, it comes back there. */
  port = 0;
  #child: ChildProcess | undefined;

  /** Settings are environment variables. */
  constructor(name: string, settings: Record<string, string> = {}) {
    this.directory = mkdtempSync(join(tmpdir(), `${name}-`));
    this.settings = settings;
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
      ...this.settings,
    };
  }

  async start(): Promise<void> {
    const { url } = await this.up("--listen", `127.0.0.1:${this.port}`);
    this.port = Number(new URL(url).port);
  }

  protected async up(...words: string[]): Promise<Ready> {
    if (!existsSync(BINARY)) throw new Error(`${BINARY} is missing: run \`make web\` and \`cargo build\` first`);
    const child = spawn(BINARY, ["up", "--ready-json", ...words], { env: this.environment, stdio: ["ignore", "pipe", "inherit"] });
    this.#child = child;
    const [line] = (await once(createInterface({ input: child.stdout }), "line")) as [string];
    const ready = JSON.parse(line) as Ready;
    this.token = ready.token;
    return ready;
  }

  async kill(signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null) return;
    const exit = once(child, "exit");
    child.kill(signal);
    await exit;
  }

  /** Stops it and forgets its data. */
  async end(): Promise<void> {
    await this.kill();
    // Agents and shells write their last when they end, which may be while we clear up: then it is looked through again.
    for (let tries = 1; ; tries += 1) {
      try {
        return rmSync(this.directory, { recursive: true, force: true });
      } catch (error) {
        if (tries === REMOVE_TRIES_MAX) throw error;
        await setTimeout(REMOVE_PAUSE_MS);
      }
    }
  }
}
