/** A server of one's own: `qd pi-server` as a child process, spoken to over its stdin and stdout. Node only. */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

import type { TransportFactory } from "./shared/transport.ts";

/** How long the output of a server that has ended is waited for: what it started may hold it open. */
const LAST_WORDS_MS = 2_000;

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
    const [program = "qd", ...words] = options.command ?? ["qd", "pi-server", "--port", "0"];
    const child = spawn(program, words, {
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
    child.once("error", (error) => {
      close(`${program} could not be started (${error.message}): check the command, PATH and the working directory`);
    });
    // `close` comes after the last line was read; `exit` may come before.
    const ended = (code: number | null, signal: NodeJS.Signals | null) => close(`the server ended (${signal ?? code})`);
    child.once("close", ended);
    child.once("exit", (code, signal) => void setTimeout(() => ended(code, signal), LAST_WORDS_MS).unref());
    child.stderr?.on("data", (chunk: Buffer) => options.onStderr?.(chunk.toString()));
    // A write after the end is told by `close`.
    child.stdin?.on("error", () => {});
    if (child.stdout) createInterface({ input: child.stdout }).on("line", (line) => handlers.message(line));
    return {
      send: (text) => void child.stdin?.write(`${text}\n`),
      close: () => void child.stdin?.end(),
    };
  };
}
