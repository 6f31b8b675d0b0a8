/** A second machine of a hub: a runner of its own, which has joined with a code. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { BINARY, type Hub } from "./hub.ts";
import { expect } from "./test.ts";

export class Runner {
  readonly directory = mkdtempSync(join(tmpdir(), "qd-web-runner-"));
  readonly project = join(this.directory, "project");
  readonly #hub: Hub;
  readonly #name: string;
  #child: ChildProcess | undefined;

  constructor(hub: Hub, name: string) {
    this.#hub = hub;
    this.#name = name;
    mkdirSync(this.project);
  }

  /** Joins with a code that the owner made, and is there when the hub says so. */
  async join(): Promise<void> {
    const { code } = await this.#hub.rest<{ code: string }>("POST", "/api/runners/invites");
    await this.#run("join", this.#hub.url, "--code", code, "--name", this.#name);
  }

  /** Comes back after it was ended. */
  async start(): Promise<void> {
    await this.#run("start");
  }

  async #run(...words: string[]): Promise<void> {
    const env = { ...this.#hub.environment, HOME: this.directory, XDG_RUNTIME_DIR: this.directory, QD_DATA_DIR: join(this.directory, "data") };
    this.#child = spawn(BINARY, ["runner", ...words], { env, stdio: ["ignore", "ignore", "inherit"] });
    await this.#isSeenAs("online");
  }

  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null) return;
    const exit = once(child, "exit");
    child.kill("SIGKILL");
    await exit;
    await this.#isSeenAs("offline");
  }

  async end(): Promise<void> {
    this.#child?.kill("SIGKILL");
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 5 });
  }

  async #isSeenAs(status: string): Promise<void> {
    await expect
      .poll(async () => {
        const { runners } = await this.#hub.command<{ runners: { runner_id: string; status: string }[] }>("get_runners");
        return runners.find((runner) => runner.runner_id === this.#name)?.status;
      })
      .toBe(status);
  }
}
