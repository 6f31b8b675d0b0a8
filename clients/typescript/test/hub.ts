/** A real hub for the tests of the canonical client, which can be killed and started again in its place. */
import type { TestContext } from "node:test";

import { Quarterdeck, type Message, type QuarterdeckOptions, type SessionModel } from "../src/index.ts";
import { HubProcess } from "./process.ts";
import { Proxy, eventually } from "./server.ts";

export class TestHub extends HubProcess {
  constructor(settings: Record<string, string> = {}) {
    super("qd-mux", settings);
  }

  get url(): string {
    return `ws://127.0.0.1:${this.port}/ws/mux`;
  }
}

export interface World {
  hub: TestHub;
  proxy: Proxy;
  /** A client through the proxy. */
  client: Quarterdeck;
  /** Another, through the proxy too unless told otherwise. */
  another: (options?: QuarterdeckOptions) => Quarterdeck;
}

/** A hub behind a network that can be cut, and a client of it. */
export async function world(context: TestContext, options: QuarterdeckOptions = {}): Promise<World> {
  const hub = new TestHub();
  context.after(() => hub.end());
  await hub.start();
  const proxy = new Proxy(() => hub.port);
  context.after(() => proxy.end());
  const url = `${await proxy.listen()}/ws/mux`;
  const another = (more: QuarterdeckOptions = {}) => {
    const client = new Quarterdeck({ url, token: hub.token, ...options, ...more });
    context.after(() => client.close());
    client.connect();
    return client;
  };
  return { hub, proxy, client: another(), another };
}

/** A session of the demo agent, followed. */
export async function demo(client: Quarterdeck): Promise<SessionModel> {
  const { session_id } = await client.call("session.create", { config: { harness: "demo" } });
  const session = client.session(session_id);
  await eventually("the session is loaded", () => session.loaded);
  return session;
}

/** Every message the hub has. */
export async function stored(client: Quarterdeck, sessionId: string): Promise<Message[]> {
  let all: Message[] = [];
  let before: number | undefined;
  do {
    const params = before === undefined ? {} : { before };
    const page = await client.call("get_messages", params, { sessionId });
    all = [...page.messages, ...all];
    before = page.before;
  } while (before !== undefined);
  return all;
}

/** Waits until the agent waits and nothing is under way, then compares with what the hub has. */
export async function settled(client: Quarterdeck, session: SessionModel, count?: number): Promise<void> {
  await eventually("the model equals get_messages", async () => {
    if (session.state?.status !== "idle" || session.partial || session.pending.length > 0) return false;
    if (count !== undefined && session.messages.length !== count) return false;
    const messages = await stored(client, session.sessionId);
    return JSON.stringify(messages) === JSON.stringify(session.messages);
  });
}

export function texts(messages: readonly Message[], role: Message["role"]): string[] {
  return messages
    .filter((message) => message.role === role)
    .map((message) => message.parts.map((part) => (part.type === "text" ? String(part["text" as keyof typeof part]) : "")).join(""));
}
