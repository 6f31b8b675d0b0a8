/** What a run has written since its screen was drawn, for whoever comes to look. */
import type { TerminalSnapshot } from "../generated/canonical.ts";
import { callBack } from "../shared/pause.ts";
import type { Output } from "./fold/folded-session.ts";

/** Kept for those who come later; above it the screen is asked for anew, which says the same in less. */
const KEPT_CHARS_MAX = 1 << 20;

/** Clears a terminal, what has scrolled away included. */
const CLEAR = "\x1bc\x1b[3J";

type Listener = (text: string, seq: number) => void;

export class RunOutputs {
  snapshot: TerminalSnapshot | undefined;
  readonly #readScreen: () => Promise<TerminalSnapshot>;
  readonly #listeners = new Set<Listener>();
  #kept: Output[] = [];
  #keptChars = 0;
  #isReading = false;

  constructor(readScreen: () => Promise<TerminalSnapshot>) {
    this.#readScreen = readScreen;
  }

  /** Gives at once what came since the screen, then what comes. */
  add(listener: Listener): () => void {
    const one: Listener = (text, seq) => listener(text, seq);
    for (const { text, seq } of this.#kept) callBack(one, text, seq);
    this.#listeners.add(one);
    return () => void this.#listeners.delete(one);
  }

  push(output: Output): void {
    // The screen may be newer than what has come so far: then it has this already.
    if (output.seq > (this.snapshot?.seq ?? 0)) {
      this.#kept.push(output);
      this.#keptChars += output.text.length;
    }
    this.#tell(output);
    if (this.#keptChars > KEPT_CHARS_MAX) void this.#shorten();
  }

  /** The screen is drawn anew: who looks is told as a terminal would be. */
  reset(snapshot: TerminalSnapshot): void {
    const isFirst = this.snapshot === undefined;
    this.#kept = [];
    this.#take(snapshot);
    if (!isFirst) this.#tell({ text: CLEAR + snapshot.scrollback + snapshot.screen, seq: snapshot.seq });
  }

  #tell({ text, seq }: Output): void {
    for (const listener of [...this.#listeners]) callBack(listener, text, seq);
  }

  #take(snapshot: TerminalSnapshot): void {
    this.snapshot = snapshot;
    this.#kept = this.#kept.filter(({ seq }) => seq > snapshot.seq);
    this.#keptChars = this.#kept.reduce((sum, { text }) => sum + text.length, 0);
  }

  /** Those who look have seen it all; only who comes later starts from the newer screen. */
  async #shorten(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      this.#take(await this.#readScreen());
    } catch {
      // The run's machine is away, or the run is over: the oldest pieces go, and a later look begins in the middle.
      while (this.#keptChars > KEPT_CHARS_MAX) this.#keptChars -= this.#kept.shift()?.text.length ?? Infinity;
    } finally {
      this.#isReading = false;
    }
  }
}
