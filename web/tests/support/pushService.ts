/** A push service on this machine: it takes what the hub sends to a device, and opens it with the device's keys. */
import { createDecipheriv, createECDH, createHmac, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { BrowserContext } from "@playwright/test";

export interface Pushed {
  kind: string;
  session_id?: string;
  title?: string;
  body?: string;
  tag?: string;
  request_id?: string;
  answer_token?: string;
  badge?: number;
}

/** Where a device is reached, and with which keys. */
export interface Address {
  endpoint: string;
  keys: { p256dh: string; auth: string };
}

export class PushService {
  /** What came, in its order. */
  readonly pushes: Pushed[] = [];
  /** What the hub said of itself with each. */
  readonly authorizations: string[] = [];
  /** Where each was sent to. */
  readonly addresses: string[] = [];
  readonly #keys = createECDH("prime256v1");
  readonly #secret = randomBytes(16);
  readonly #server = createServer((request, response) => {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.once("end", () => {
      this.authorizations.push(request.headers.authorization ?? "");
      this.addresses.push(request.url ?? "");
      this.pushes.push(this.#open(Buffer.concat(pieces)));
      response.writeHead(201).end();
    });
  });

  async start(): Promise<void> {
    this.#keys.generateKeys();
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
  }

  end(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  /** The browser of the tests has no push service of its own: it is told to use this one. Everything after is real. */
  async use(context: BrowserContext): Promise<void> {
    await context.addInitScript(
      ({ endpoint, keys }) => {
        const name = "test.push";
        const subscription = {
          endpoint,
          toJSON: () => ({ endpoint, keys }),
          unsubscribe: () => (localStorage.removeItem(name), Promise.resolve(true)),
        } as unknown as PushSubscription;
        PushManager.prototype.subscribe = () => (localStorage.setItem(name, "1"), Promise.resolve(subscription));
        PushManager.prototype.getSubscription = () => Promise.resolve(localStorage.getItem(name) ? subscription : null);
      },
      this.#address(1),
    );
  }

  /** Where the same device is reached after it has moved. */
  another(): Address {
    return this.#address(2);
  }

  #address(number: number): Address {
    const endpoint = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/push/${number}`;
    return { endpoint, keys: { p256dh: this.#keys.getPublicKey().toString("base64url"), auth: this.#secret.toString("base64url") } };
  }

  /** Opens a message as RFC 8291 closes it. */
  #open(body: Buffer): Pushed {
    const salt = body.subarray(0, 16);
    const length = body[20] ?? 0;
    const key = body.subarray(21, 21 + length);
    const closed = body.subarray(21 + length);
    const info = Buffer.concat([Buffer.from("WebPush: info\0"), this.#keys.getPublicKey(), key]);
    const shared = derived(this.#secret, this.#keys.computeSecret(key), info, 32);
    const contentKey = derived(salt, shared, Buffer.from("Content-Encoding: aes128gcm\0"), 16);
    const nonce = derived(salt, shared, Buffer.from("Content-Encoding: nonce\0"), 12);
    const cipher = createDecipheriv("aes-128-gcm", contentKey, nonce);
    cipher.setAuthTag(closed.subarray(-16));
    const text = Buffer.concat([cipher.update(closed.subarray(0, -16)), cipher.final()]);
    return JSON.parse(text.subarray(0, text.lastIndexOf(2)).toString()) as Pushed;
  }
}

function derived(salt: Buffer, material: Buffer, info: Buffer, length: number): Buffer {
  const key = createHmac("sha256", salt).update(material).digest();
  return createHmac("sha256", key).update(Buffer.concat([info, Buffer.from([1])])).digest().subarray(0, length);
}
