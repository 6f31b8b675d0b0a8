/** How messages travel: one text each way at a time, whole. */
export interface TransportHandlers {
  opened(): void;
  message(text: string): void;
  /** Called once, also when it never opened. */
  closed(reason: string): void;
}

export interface Transport {
  send(text: string): void;
  close(): void;
}

/** Opens a new connection each time it is called. */
export type TransportFactory = (handlers: TransportHandlers) => Transport;

/**
 * WebSocket, in browsers and in Node. The token goes into the query, because a browser's WebSocket has no headers; the
 * server does not log it.
 */
export function webSocketTransport(url: string, token?: string): TransportFactory {
  const address = new URL(url);
  if (address.protocol === "http:") address.protocol = "ws:";
  if (address.protocol === "https:") address.protocol = "wss:";
  if (token !== undefined) address.searchParams.set("token", token);
  return (handlers) => {
    const socket = new WebSocket(address);
    let isClosed = false;
    const close = (reason: string) => {
      if (isClosed) return;
      isClosed = true;
      handlers.closed(reason);
    };
    socket.addEventListener("open", () => handlers.opened());
    socket.addEventListener("message", (message) => handlers.message(String(message.data)));
    socket.addEventListener("close", (event) => close(event.reason || `closed with code ${event.code}`));
    socket.addEventListener("error", () => {
      // A `close` follows where the platform sends one; a failed handshake may have only this.
      if (socket.readyState === WebSocket.CLOSED || socket.readyState === WebSocket.CONNECTING) {
        close("the connection failed");
      }
    });
    return {
      send: (text) => socket.send(text),
      close: () => {
        socket.close();
        close("closed by this client");
      },
    };
  };
}
