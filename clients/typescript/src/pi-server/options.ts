/** What a client is told when it is made, what is told with a command, and what comes back. */
import type { CommandData, Envelope, ServerMessage } from "../generated/pi-server.ts";
import type { TransportFactory } from "../shared/transport.ts";

export interface ClientOptions {
  /** `ws://127.0.0.1:3141`, or the hub's address with `/ws/pi`. */
  url?: string;
  token?: string;
  /** Instead of `url`: another way to the server, for example `stdioTransport()`. */
  transport?: TransportFactory;
  /** Connect again when the connection is lost; true unless said otherwise. */
  reconnect?: boolean;
  /**
   * Also when there never was a connection; otherwise the first failure rejects `connect()` and the commands that wait
   * (wrong address, wrong token), and the next command tries again.
   */
  keepTrying?: boolean;
  /** Larger commands are rejected and not sent; 10 MiB unless said otherwise, as the server's own limit. */
  messageBytesMax?: number;
  /**
   * A command is given up when so many connections in a row were lost right after it was sent: it may be what ends
   * them. 30 unless said otherwise.
   */
  resendsMax?: number;
  /**
   * A server that says nothing for so long is asked for its health, and one that does not answer for as long again is
   * taken for lost. Asked only while commands have no answer or a session is followed. 30,000 unless said otherwise, 0
   * for never.
   */
  silenceMs?: number;
  /** Called with everything that is no response: lifecycle, sessions, events. */
  onMessage?: (message: ServerMessage) => void;
  /** Called when the connection comes and goes, and for every attempt that failed. */
  onConnection?: (state: "connected" | "disconnected", reason?: string) => void;
}

export type SendOptions = Envelope & {
  /** Gives up waiting; the command may still run. */
  signal?: AbortSignal;
};

/** A successful answer. */
export interface Answer<K extends keyof CommandData> {
  data: CommandData[K];
  sessionVersion?: number;
  /** The outcome is of an earlier attempt of this very command. */
  replayed: boolean;
  id: string;
}
