/** A shell on a machine, seen as bytes. It is shared by all who open it, and goes on without them. */
import type { SessionState, TerminalFrame } from "../generated/canonical.ts";
import { newId } from "../shared/ids.ts";
import { callBack } from "../shared/pause.ts";
import { Listeners } from "../shared/listeners.ts";
import type { TerminalOptions } from "./types.ts";

/** What a terminal needs of its client. */
export interface TerminalClient {
  readonly isLive: boolean;
  send(text: string): void;
  readState(sessionId: string): Promise<SessionState>;
  /** Whether another model of this client shows the same terminal: the connection follows it once for both. */
  isShared(model: TerminalModel): boolean;
  left(model: TerminalModel): void;
}

export class TerminalModel {
  readonly #client: TerminalClient;
  readonly #options: TerminalOptions;
  readonly #changes = new Listeners<[]>();
  readonly #data = new Set<(bytes: Uint8Array, isReset: boolean) => void>();
  /** What came before anybody listened, since the screen was last drawn. */
  #early: { bytes: Uint8Array; isReset: boolean }[] = [];
  #openId = "";
  #terminalId: string | undefined;
  #state: "opening" | "open" | "reconnecting" | "exited" | "failed" | "closed" = "opening";
  #cols: number;
  #rows: number;
  #joined = false;
  #exit: { exitCode: number; signal?: number } | undefined;
  #error: string | undefined;

  /** @internal */
  constructor(options: TerminalOptions, client: TerminalClient) {
    this.#client = client;
    this.#options = options;
    this.#terminalId = options.terminalId;
    this.#cols = options.cols;
    this.#rows = options.rows;
  }

  /** Its name, known when it is open; who knows it can join with it. */
  get terminalId(): string | undefined {
    return this.#terminalId;
  }

  get state(): "opening" | "open" | "reconnecting" | "exited" | "failed" | "closed" {
    return this.#state;
  }

  /** Its size; everybody in it sees the same. */
  get cols(): number {
    return this.#cols;
  }

  get rows(): number {
    return this.#rows;
  }

  /** It was there before: somebody else may be in it. */
  get joined(): boolean {
    return this.#joined;
  }

  get exit(): { exitCode: number; signal?: number } | undefined {
    return this.#exit;
  }

  /** Why it failed, or why the last input or resize was refused. */
  get error(): string | undefined {
    return this.#error;
  }

  /** State, size, exit and error. */
  onChange(listener: () => void): () => void {
    return this.#changes.add(listener);
  }

  /** `isReset`: clear everything first, what follows is scrollback and screen. */
  onData(listener: (bytes: Uint8Array, isReset: boolean) => void): () => void {
    const one = (bytes: Uint8Array, isReset: boolean) => listener(bytes, isReset);
    if (this.#data.size === 0) for (const { bytes, isReset } of this.#early.splice(0)) callBack(one, bytes, isReset);
    this.#data.add(one);
    return () => void this.#data.delete(one);
  }

  /** Keys as they are typed. Dropped while there is no connection: nobody wants them a minute later. */
  input(text: string): void {
    if (this.#state === "open") this.#say({ type: "input", terminal_id: this.#terminalId, data: text });
  }

  /** Also while it is not open yet, or not connected: the size is told then. */
  resize(cols: number, rows: number): void {
    this.#options.cols = cols;
    this.#options.rows = rows;
    if (this.#state === "open") this.#say({ type: "resize", terminal_id: this.#terminalId, cols, rows });
  }

  /** Ends the program. */
  close(): void {
    if (this.#terminalId !== undefined) this.#say({ type: "close", terminal_id: this.#terminalId });
    this.#leave();
  }

  /** Stops looking; the terminal goes on and can be joined by its `terminalId`. */
  leave(): void {
    const isLast = this.#terminalId !== undefined && !this.#client.isShared(this);
    if (isLast) this.#say({ type: "leave", terminal_id: this.#terminalId });
    this.#leave();
  }

  #leave(): void {
    if (this.#state !== "exited" && this.#state !== "failed") this.#set("closed");
    this.#client.left(this);
  }

  /** @internal A connection is there: opened, or joined again. */
  live(): void {
    if (this.#state !== "opening" && this.#state !== "reconnecting") return;
    const { runnerId, sessionId, cwd, cols, rows } = this.#options;
    this.#openId = newId();
    const place = { workspace_path: cwd, session_id: sessionId, runner_id: runnerId };
    this.#say({ type: "open", id: this.#openId, ...place, terminal_id: this.#terminalId, cols, rows });
  }

  /** @internal */
  lost(): void {
    if (this.#state === "open") this.#set("reconnecting");
  }

  /** @internal Whether a frame is for this terminal. */
  isMine(frame: TerminalFrame): boolean {
    if (frame.id !== undefined && frame.id === this.#openId) return true;
    return this.#terminalId !== undefined && frame.terminal_id === this.#terminalId;
  }

  /** @internal */
  take(frame: TerminalFrame): void {
    switch (frame.type) {
      case "opened":
        this.#opened(frame.terminal_id, frame.cols, frame.rows, frame.joined);
        break;
      case "output":
        this.#output(decode(frame.data_base64), frame.reset ?? false);
        break;
      case "resized":
        this.#cols = frame.cols;
        this.#rows = frame.rows;
        this.#changes.tell();
        break;
      case "exit":
        this.#exited(frame.exit_code, frame.signal);
        break;
      case "error":
        this.#failed(frame.error);
        break;
    }
  }

  #opened(terminalId: string, cols: number, rows: number, joined: boolean): void {
    const wasThere = this.#terminalId !== undefined;
    this.#terminalId = terminalId;
    this.#cols = cols;
    this.#rows = rows;
    this.#joined = joined;
    this.#error = undefined;
    this.#set("open");
    // The size may have changed while there was no connection.
    if (this.#options.cols !== cols || this.#options.rows !== rows) this.resize(this.#options.cols, this.#options.rows);
    if (wasThere && joined) void this.#look(terminalId);
  }

  /** The end of a program that ended before this is not told again: it is asked for. */
  async #look(terminalId: string): Promise<void> {
    try {
      const { status, run } = await this.#client.readState(terminalId);
      if (status === "closed" && this.#state === "open") this.#exited(run?.exit_code ?? -1, run?.signal);
    } catch {
      // Its machine is away: the channel tells what becomes of it.
    }
  }

  #exited(exitCode: number, signal: number | undefined): void {
    this.#exit = signal === undefined ? { exitCode } : { exitCode, signal };
    this.#set("exited");
    this.#client.left(this);
  }

  #failed(error: string): void {
    this.#error = error;
    if (this.#state === "open") {
      this.#changes.tell();
      return;
    }
    this.#set("failed");
    this.#client.left(this);
  }

  #output(bytes: Uint8Array, isReset: boolean): void {
    if (this.#data.size === 0) {
      if (isReset) this.#early = [];
      this.#early.push({ bytes, isReset });
      return;
    }
    for (const listener of [...this.#data]) callBack(listener, bytes, isReset);
  }

  #set(state: TerminalModel["state"]): void {
    this.#state = state;
    this.#changes.tell();
  }

  #say(frame: object): void {
    if (this.#client.isLive) this.#client.send(JSON.stringify({ channel: "terminal", ...frame }));
  }
}

function decode(base64: string): Uint8Array {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}
