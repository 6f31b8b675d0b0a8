/** A real server for the tests, and a network that can be cut. */
import { once } from "node:events";
import { createServer, connect, type AddressInfo, type Server, type Socket } from "node:net";

import { HubProcess } from "./process.ts";

/** A hub whose pi-server face is used; its port is that face's. */
export class TestServer extends HubProcess {
  constructor(settings: Record<string, string> = {}) {
    super("qd-client", { QD_PI_RATE_PER_MINUTE: "0", QD_PI_GLOBAL_RATE_PER_MINUTE: "0", ...settings });
  }

  override async start(): Promise<void> {
    const { pi_server_url } = await this.up("--listen", "127.0.0.1:0", "--pi-server-port", String(this.port));
    this.port = Number(new URL(pi_server_url).port);
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
