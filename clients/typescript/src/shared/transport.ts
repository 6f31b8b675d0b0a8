/** How messages travel: one text each way at a time, whole. */
export interface TransportHandlers {
  opened(): void;
  message(text: string): void;
  /** Called once, also when it never opened; the reason is for people, the code a WebSocket's. */
  closed(reason: string, code?: number): void;
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
export function webSocketTransport(url: string, token?: string, path: string = "/ws/pi"): TransportFactory {
  const address = new URL(url);
  if (address.protocol === "http:") address.protocol = "ws:";
  if (address.protocol === "https:") address.protocol = "wss:";
  const shown = `${address.protocol}//${address.host}${address.pathname}`;
  if (token !== undefined) address.searchParams.set("token", token);
  return (handlers) => {
    const socket = new WebSocket(address);
    let isClosed = false;
    let isOpened = false;
    const close = (reason: string, code?: number) => {
      if (isClosed) return;
      isClosed = true;
      handlers.closed(reason, code);
    };
    // Platforms do not tell why a handshake failed (a browser must not), so the reason is a list of what to look at.
    const failed = (detail: string) =>
      `could not connect to ${shown}${detail}: check that a server listens there, that the path is right (\`${path}\` on a hub's ` +
      "own port), that the token is right and, in a browser, that the server allows this page's origin";
    let detail = "";
    socket.addEventListener("open", () => {
      isOpened = true;
      handlers.opened();
    });
    socket.addEventListener("message", (message) => handlers.message(String(message.data)));
    socket.addEventListener("close", (event) => {
      if (isOpened) close(event.reason || `the connection was closed with code ${event.code}${detail}`, event.code);
      else close(failed(detail));
    });
    socket.addEventListener("error", (event) => {
      const message = (event as { message?: string }).message;
      if (message) detail = ` (${message})`;
      // A `close` follows where the platform sends one; a failed handshake may have only this.
      if (!isOpened) setTimeout(() => close(failed(detail)), 0);
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
