/** A server that says what the test tells it to, where the real one would have to be unlucky in the right moment. */
import type { TransportFactory, TransportHandlers } from "../src/pi-server.ts";

export interface Sent {
  type: string;
  id: string;
  sessionId?: string;
  [key: string]: unknown;
}

export class ScriptedServer {
  /** Every connection's handlers, newest last. */
  readonly connections: TransportHandlers[] = [];
  /** Every command, in order. */
  readonly sent: Sent[] = [];
  /** Called for every command; without it nothing is answered. */
  onCommand: (command: Sent) => void = () => {};
  /** New connections are greeted. */
  isGreeting = true;

  readonly transport: TransportFactory = (handlers) => {
    this.connections.push(handlers);
    let isOpen = true;
    if (this.isGreeting) queueMicrotask(() => this.say({ type: "server_ready", data: READY }));
    return {
      send: (text) => {
        if (!isOpen) return;
        const command = JSON.parse(text) as Sent;
        this.sent.push(command);
        queueMicrotask(() => this.onCommand(command));
      },
      close: () => {
        isOpen = false;
      },
    };
  };

  say(message: object): void {
    this.connections.at(-1)?.message(JSON.stringify(message));
  }

  answer(command: Sent, fields: object = {}): void {
    this.say({ type: "response", id: command.id, command: command.type, success: true, ...fields });
  }

  refuse(command: Sent, error: string): void {
    this.answer(command, { success: false, error });
  }

  event(sessionId: string, event: object): void {
    this.say({ type: "event", sessionId, event });
  }

  /** What the server sends after `switch_session`. */
  resync(sessionId: string, message: unknown = null): void {
    const sessionInfo = { sessionId, thinkingLevel: "off", isStreaming: false, messageCount: 0, createdAt: "" };
    this.event(sessionId, { type: "session_resync", sessionInfo, message, pendingRequests: [] });
  }

  cut(): void {
    this.connections.at(-1)?.closed("cut");
  }

  count(type: string): number {
    return this.sent.filter((command) => command.type === type).length;
  }
}

const READY = { serverVersion: "test", protocolVersion: "1.0.0", transports: [] };
