/** A server of one's own: `qd pi-server` as a child process, spoken to over its stdin and stdout. Node only. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

import type { TransportFactory } from "./transport.ts";

export interface StdioOptions {
  /** `["qd", "pi-server", "--port", "0"]` unless said otherwise. */
  command?: string[];
  env?: Record<string, string | undefined>;
  cwd?: string;
  /** What the server writes to stderr; inherited unless said otherwise. */
  onStderr?: (text: string) => void;
}

export function stdioTransport(options: StdioOptions = {}): TransportFactory {
  return (handlers) => {
    const [program, ...words] = options.command ?? ["qd", "pi-server", "--port", "0"];
    const child = spawn(program ?? "qd", words, {
      cwd: options.cwd,
      env: options.env ?? process.env,
      stdio: ["pipe", "pipe", options.onStderr ? "pipe" : "inherit"],
    });
    let isClosed = false;
    const close = (reason: string) => {
      if (isClosed) return;
      isClosed = true;
      handlers.closed(reason);
    };
    child.once("spawn", () => handlers.opened());
    child.once("error", (error) => close(error.message));
    child.once("exit", (code, signal) => close(`the server ended (${signal ?? code})`));
    child.stderr?.on("data", (chunk: Buffer) => options.onStderr?.(chunk.toString()));
    // A write after the end is told by `exit`.
    child.stdin?.on("error", () => {});
    if (child.stdout) createInterface({ input: child.stdout }).on("line", (line) => handlers.message(line));
    return {
      send: (text) => void child.stdin?.write(`${text}\n`),
      close: () => void child.stdin?.end(),
    };
  };
}
