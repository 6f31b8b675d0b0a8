/** A hub that says what the test tells it to, where the real one would have to be unlucky in the right moment. */
import type { TestContext } from "node:test";

import { Quarterdeck, type AttachData, type Message, type QuarterdeckOptions } from "../src/index.ts";
import type { TransportFactory, TransportHandlers } from "../src/shared/transport.ts";

export interface Said {
  channel: string;
  id: string;
  cmd: string;
  session_id?: string;
  idempotency_key?: string;
  [field: string]: unknown;
}

export class FakeHub {
  readonly connections: TransportHandlers[] = [];
  readonly said: Said[] = [];
  /** Answers to commands by name; others are answered by `ordinary`. */
  readonly answers = new Map<string, (command: Said) => void>();
  messages: Message[] = [];
  messageCount = 0;
  seq = 0;

  readonly transport: TransportFactory = (handlers) => {
    this.connections.push(handlers);
    let isOpen = true;
    const greeting = { type: "connected", protocol_version: "1.0.0", server_version: "fake", connection_id: "c" };
    queueMicrotask(() => this.say({ channel: "system", ...greeting }));
    return {
      send: (text) => {
        if (!isOpen) return;
        const command = JSON.parse(text) as Said;
        this.said.push(command);
        queueMicrotask(() => (this.answers.get(command.cmd) ?? ((it: Said) => this.ordinary(it)))(command));
      },
      close: () => {
        isOpen = false;
      },
    };
  };

  client(context: TestContext, options: QuarterdeckOptions = {}): Quarterdeck {
    const client = new Quarterdeck({ transport: this.transport, silenceMs: 0, ...options });
    context.after(() => client.close());
    client.connect();
    return client;
  }

  ordinary(command: Said): void {
    if (command.cmd === "list_sessions") this.answer(command, { sessions: [] });
    else if (command.cmd === "get_runners") this.answer(command, { runners: [] });
    else if (command.cmd === "session.attach") this.answer(command, this.attach());
    else if (command.cmd !== undefined) this.answer(command, {});
  }

  attach(fields: Partial<AttachData> = {}): AttachData {
    const queue = { steering: [], follow_up: [] };
    const head = { session_id: "s", runner_id: "r", harness: "demo", status: "idle", session_version: 0 } as const;
    const state = { ...head, seq: this.seq, message_count: this.messageCount, queue, pending_input: [] };
    return { resume: "ok", seq: this.seq, state, pending_input: [], messages: this.messages, ...fields };
  }

  say(frame: object): void {
    this.connections.at(-1)?.message(JSON.stringify(frame));
  }

  /** An event of the session `s`; `isRecord` gives it the next number. */
  event(fields: object, isRecord: boolean = false): void {
    if (isRecord) this.seq += 1;
    const seq = isRecord ? { seq: this.seq } : {};
    this.say({ channel: "agent", session_id: "s", runner_id: "r", ts: 1, ...seq, ...fields });
  }

  answer(command: Said, data: unknown): void {
    const { id, cmd, session_id } = command;
    this.say({ channel: "agent", event: "response", id, cmd, session_id, success: true, data });
  }

  refuse(command: Said, error: string, fields: object = {}): void {
    const { id, cmd, session_id } = command;
    this.say({ channel: "agent", event: "response", id, cmd, session_id, success: false, error, ...fields });
  }

  cut(): void {
    this.connections.at(-1)?.closed("cut");
  }

  of(cmd: string): Said[] {
    return this.said.filter((command) => command.cmd === cmd);
  }
}
