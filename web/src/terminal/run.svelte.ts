import { IndeterminateError, type TerminalSnapshot } from "@quarterdeck/client";
import { app, toast } from "../lib/app.svelte.ts";
import { errorText } from "../lib/format.ts";
import type { SessionView } from "../lib/session/view.svelte.ts";
import { TerminalScreen } from "./screen/screen.svelte.ts";
import { Typing } from "./screen/typing.ts";

type Signal = "int" | "term" | "kill";

/** A program in a terminal, as a person sees and types into it: first its screen, then each record once. */
export class RunTerminal {
  readonly screen: TerminalScreen;
  /** Why the screen is not there. */
  error = $state<string>();
  #view: SessionView;
  #typing: Typing;
  #drawnSeq = 0;
  /** Output that came while the screen was being asked for; nothing when it is not. */
  #held: { text: string; seq: number }[] | undefined;
  #startedAt: number | undefined;
  /** The size we last heard of; news are only what differs from it. */
  #heardSize = "";
  #ends: (() => void)[] = [];
  #isOver = false;

  constructor(view: SessionView) {
    this.#view = view;
    this.screen = new TerminalScreen({
      input: (text) => this.#typing.type(text),
      resize: (cols, rows) => void this.#resize(cols, rows),
    });
    this.#typing = new Typing(
      (text, key) => app.client.call("run.stdin", { text, actor: "web" }, { sessionId: view.sessionId, key }),
      (error) => this.#lost(error),
    );
    const { model } = view;
    this.#ends.push(
      model.onOutput((text, seq) => this.#output(text, seq)),
      model.onChange(({ kind }) => {
        if (kind === "all") void this.draw();
        else if (kind !== "delta") this.#followState();
      }),
    );
    if (model.loaded) void this.draw();
  }

  get sessionId(): string {
    return this.#view.sessionId;
  }

  /** Asks for the screen and draws it; what is written meanwhile follows it. */
  async draw(): Promise<void> {
    if (this.#held) return;
    this.#held = [];
    this.#startedAt = this.#view.model.state?.run?.started_at;
    try {
      const snapshot = await app.client.call("run.screen", {}, { sessionId: this.sessionId });
      this.error = undefined;
      this.#show(snapshot as TerminalSnapshot);
    } catch (error) {
      // A machine that is away cannot be asked; what it showed when we came is better than nothing.
      const known = this.#view.model.terminal;
      if (known) this.#show(known);
      else this.error = errorText(error);
    }
    const held = this.#held;
    this.#held = undefined;
    for (const { text, seq } of held) this.#output(text, seq);
    this.#followState();
  }

  async stop(signal: Signal): Promise<void> {
    try {
      await app.client.call("run.stop", { signal, actor: "web" }, { sessionId: this.sessionId });
    } catch (error) {
      toast(`The program was not stopped: ${errorText(error)}`, { kind: "error" });
    }
  }

  async restart(): Promise<void> {
    try {
      await app.client.call("session.restart", {}, { sessionId: this.sessionId });
      this.screen.terminal.focus();
    } catch (error) {
      toast(`The program was not started again: ${errorText(error)}`, { kind: "error" });
    }
  }

  release(): void {
    this.#isOver = true;
    this.#typing.clear();
    this.#ends.forEach((end) => end());
    this.screen.dispose();
  }

  #show(snapshot: TerminalSnapshot): void {
    if (this.#isOver) return;
    this.#drawnSeq = snapshot.seq;
    this.#heardSize = `${snapshot.cols}x${snapshot.rows}`;
    this.screen.redraw(snapshot.scrollback + snapshot.screen, snapshot);
    this.screen.refit();
  }

  #output(text: string, seq: number): void {
    if (this.#held) this.#held.push({ text, seq });
    else if (seq > this.#drawnSeq && !this.#isOver) {
      this.#drawnSeq = seq;
      this.screen.write(text);
    }
  }

  #followState(): void {
    const run = this.#view.model.state?.run;
    if (!run || this.#isOver) return;
    if (run.started_at !== this.#startedAt && !this.#held) {
      // It was started again: its screen is empty and has another life.
      void this.draw();
      return;
    }
    const size = `${run.cols}x${run.rows}`;
    if (size === this.#heardSize || run.exit_code !== undefined) return;
    this.#heardSize = size;
    this.screen.follow(run.cols, run.rows);
  }

  async #resize(cols: number, rows: number): Promise<void> {
    try {
      await app.client.call("run.resize", { cols, rows }, { sessionId: this.sessionId });
    } catch (error) {
      // The program goes on in its old size; the next change of the window tries again.
      toast(`The program was not told the new size: ${errorText(error)}`, { kind: "error" });
    }
  }

  #lost(error: unknown): void {
    const isUnknown = error instanceof IndeterminateError;
    const what = isUnknown ? "Your last keystrokes may not have arrived" : "Your last keystrokes did not arrive";
    toast(`${what}: ${errorText(error)}`, { kind: "error" });
  }
}
