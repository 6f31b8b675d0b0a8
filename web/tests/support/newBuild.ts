/** The same hub behind an address at which, when a test says so, it has another build of the app. */
import { once } from "node:events";
import { createServer, request as ask, type IncomingMessage, type ServerResponse } from "node:http";
import { connect, type AddressInfo } from "node:net";

import type { Hub } from "./hub.ts";

/** What marks the files of the other build; they are the same files under other names. */
const MARK = "other-";

export class NewBuild {
  isOut = false;
  readonly #hub: Hub;
  readonly #server = createServer((request, response) => void this.#answer(request, response));

  constructor(hub: Hub) {
    this.#hub = hub;
    this.#server.on("upgrade", (request, socket, head) => {
      const upstream = connect(hub.port, "127.0.0.1", () => {
        const headers = request.rawHeaders.map((word, index) => (index % 2 === 0 ? `${word}: ` : `${word}\r\n`)).join("");
        upstream.write(`${request.method} ${request.url} HTTP/1.1\r\n${headers}\r\n`);
        upstream.write(head);
        socket.pipe(upstream).pipe(socket);
      });
      upstream.on("error", () => socket.destroy());
      socket.on("error", () => upstream.destroy());
    });
  }

  async start(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  end(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url?.replace(`/assets/${MARK}`, "/assets/");
    // What the browser kept of the one build says nothing about the other.
    const { "if-none-match": _, ...kept } = request.headers;
    const headers = { ...kept, "accept-encoding": "identity" };
    const upstream = ask({ host: "127.0.0.1", port: this.#hub.port, method: request.method, path, headers });
    request.pipe(upstream);
    const [answer] = (await once(upstream, "response")) as [IncomingMessage];
    const pieces: Buffer[] = [];
    for await (const piece of answer) pieces.push(piece as Buffer);
    const body = Buffer.concat(pieces);
    const namesFiles = /html|javascript/.test(answer.headers["content-type"] ?? "");
    const text = namesFiles && this.isOut ? renamed(body.toString("utf8")) : body;
    response.writeHead(answer.statusCode ?? 502, { ...answer.headers, "content-length": Buffer.byteLength(text) });
    response.end(text);
  }
}

/** A page, a script or the service worker as the other build has it. */
function renamed(text: string): string {
  const names = /(?<=assets\/|["'`]\.\/)[\w.]+-[\w-]{8}\.(?:js|css)/g;
  return text.replaceAll(names, `${MARK}$&`).replace(/"version":"\w+"/, '"version":"another"');
}
