/** A real server for the tests, and a network that can be cut. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, connect, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

/** The binary under test; `cargo build` puts it there. */
export const BINARY = process.env["QD_BINARY"] ?? resolve(import.meta.dirname, "../../../target/debug/qd");

export class TestServer {
  readonly directory = mkdtempSync(join(tmpdir(), "qd-client-"));
  token = "";
  port = 0;
  #child: ChildProcess | undefined;

  environment(): Record<string, string> {
    return {
      PATH: process.env["PATH"] ?? "",
      HOME: this.directory,
      QD_DATA_DIR: join(this.directory, "data"),
      QD_PI_COMMAND: "/no/pi/here",
      QD_PI_RATE_PER_MINUTE: "0",
      QD_PI_GLOBAL_RATE_PER_MINUTE: "0",
      ...this.settings,
    };
  }

  readonly settings: Record<string, string>;

  constructor(settings: Record<string, string> = {}) {
    this.settings = settings;
  }

  async start(): Promise<void> {
    const words = ["up", "--ready-json", "--listen", "127.0.0.1:0", "--pi-server-port", String(this.port)];
    const child = spawn(BINARY, words, { env: this.environment(), stdio: ["ignore", "pipe", "inherit"] });
    this.#child = child;
    const lines = createInterface({ input: child.stdout });
    const [line] = (await once(lines, "line")) as [string];
    const ready = JSON.parse(line) as { token: string; pi_server_url: string };
    this.token = ready.token;
    this.port = Number(new URL(ready.pi_server_url).port);
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
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** Passes bytes on until it is told to cut every connection. */
export class Proxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  isDown = false;
  connections = 0;

  constructor(target: () => number) {
    this.#server = createServer((client) => {
      if (this.isDown) {
        client.destroy();
        return;
      }
      this.connections += 1;
      const server = connect(target(), "127.0.0.1");
      for (const [one, other] of [
        [client, server],
        [server, client],
      ] as const) {
        this.#sockets.add(one);
        one.on("error", () => other.destroy());
        one.on("close", () => {
          this.#sockets.delete(one);
          other.destroy();
        });
        one.pipe(other);
      }
    });
  }

  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return this.address;
  }

  get address(): string {
    return `ws://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Breaks every connection, in the middle of whatever it carries. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** What is open now carries nothing any more, but nobody is told; new connections are as ever. */
  stall(): void {
    for (const socket of this.#sockets) {
      socket.unpipe();
      socket.pause();
    }
  }

  /** Nothing is read from the servers for a while, so that they think their clients slow. */
  hold(): () => void {
    const held = [...this.#sockets];
    for (const socket of held) socket.pause();
    return () => held.forEach((socket) => socket.resume());
  }

  end(): void {
    this.cut();
    this.#server.close();
  }
}

/** Waits until something is true. */
export async function eventually(what: string, condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 40_000;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`waited in vain: ${what}`);
    await new Promise((resume) => setTimeout(resume, 10));
  }
}
