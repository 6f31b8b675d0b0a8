import { FitAddon } from "@xterm/addon-fit";
import { type ISearchOptions, SearchAddon } from "@xterm/addon-search";
import { type ILink, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { confirm } from "../../lib/dialogs.svelte.ts";
import { toasts } from "../../lib/toasts.svelte.ts";
import { makeVisibleStrict } from "../../text/visible/visible.ts";
import { linksIn, openableAddress } from "./links.ts";
import { allowStyledSpans, documentForTerminal, openUnderPolicy } from "../policy.ts";
import { preferences } from "./preferences.svelte.ts";
import { isReply } from "./replies.ts";
import { type SearchColours, themeOf } from "./theme.ts";

const SCROLLBACK_LINES = 10_000;

/** Sizes we asked for that may still come back as news. */
const SIZES_KEPT = 8;

/** A window that is dragged to another size tells so at its end, not at every step. */
const RESIZE_PAUSE_MS = 80;

/** What a program may be given at most and least. */
const SIZE = { colsMin: 2, colsMax: 500, rowsMin: 1, rowsMax: 200 } as const;

export interface ScreenEvents {
  /** Keys, pastes and answers to the program's questions. */
  input(text: string): void;
  /** The window this person looks through has room for so much. */
  resize(cols: number, rows: number): void;
}

export interface SearchState {
  count: number;
  /** From 1; 0 where there is none. */
  at: number;
}

/**
 * One terminal on the screen. Several people may look at the same program through windows of different sizes: its size
 * follows whoever used it last, and the others see it as it is.
 */
export class TerminalScreen {
  readonly terminal: Terminal;
  title = $state("");
  isWritable = $state(true);
  /** Whether the program's size is that of this window. */
  isFitted = $state(true);
  cols = $state(80);
  rows = $state(24);
  /** The next key is pressed together with Ctrl: set by the touch keys. */
  isCtrlHeld = $state(false);
  found = $state<SearchState>({ count: 0, at: 0 });
  isSearchOpen = $state(false);
  hasSelection = $state(false);
  /** Takes the keyboard out of the terminal. */
  leave: () => void = () => {};

  #fit = new FitAddon();
  #search = new SearchAddon();
  #events: ScreenEvents;
  #colours: SearchColours = { match: "#fff1b8", active: "#ffc94d" };
  #searchKind = "";
  #isActive = false;
  #redraws = 0;
  #sent: string[] = [];
  #resizeTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(events: ScreenEvents) {
    this.#events = events;
    allowStyledSpans();
    this.terminal = new Terminal({
      allowProposedApi: true,
      cursorBlink: false,
      documentOverride: documentForTerminal(),
      fontSize: preferences.fontSize,
      screenReaderMode: preferences.screenReader,
      scrollback: SCROLLBACK_LINES,
      minimumContrastRatio: 4.5,
      linkHandler: { activate: (_event, address) => this.#askLink(address), allowNonHttpProtocols: false },
    });
    this.terminal.loadAddon(this.#fit);
    this.terminal.loadAddon(this.#search);
    this.terminal.onData((data) => this.#typed(data));
    this.terminal.onBinary((data) => this.#typed(data));
    this.terminal.onTitleChange((title) => (this.title = title));
    this.terminal.onSelectionChange(() => (this.hasSelection = this.terminal.hasSelection()));
    this.terminal.onResize(({ cols, rows }) => {
      this.cols = cols;
      this.rows = rows;
    });
    this.terminal.attachCustomKeyEventHandler((event) => this.#key(event));
    this.terminal.registerLinkProvider({ provideLinks: (line, done) => done(this.#links(line)) });
    this.#search.onDidChangeResults(({ resultIndex, resultCount }) => {
      this.found = { count: resultCount, at: resultIndex + 1 };
    });
  }

  /** Puts it into the page. */
  open(host: HTMLElement): void {
    const family = getComputedStyle(host).getPropertyValue("--mono").trim();
    if (family !== "") this.terminal.options.fontFamily = family;
    this.recolour(host);
    openUnderPolicy(() => this.terminal.open(host));
    this.refit();
  }

  recolour(host: Element): void {
    const { theme, search } = themeOf(host);
    this.terminal.options.theme = theme;
    this.#colours = search;
  }

  /** Everything anew: what is drawn is the whole of it. */
  redraw(data: string | Uint8Array, size?: { cols: number; rows: number }): void {
    this.terminal.reset();
    if (size) this.#setSize(size.cols, size.rows);
    this.#redraws += 1;
    this.terminal.write(data, () => {
      this.#redraws -= 1;
    });
  }

  write(data: string | Uint8Array): void {
    this.terminal.write(data);
  }

  /** The program has this size now: ours, or what another window gave it. */
  follow(cols: number, rows: number): void {
    const known = this.#sent.indexOf(`${cols}x${rows}`);
    if (known >= 0) {
      // An echo of what we asked for; a newer wish of ours may be under way.
      this.#sent.splice(0, known + 1);
      return;
    }
    if (cols === this.terminal.cols && rows === this.terminal.rows) return;
    this.#isActive = false;
    this.#setSize(cols, rows);
    this.#compare();
  }

  /** This person uses the terminal: from now on it has the size of their window. */
  claim(): void {
    if (this.#isActive || !this.isWritable) return;
    this.#isActive = true;
    this.refit();
  }

  /** The window may have another size now. */
  refit(): void {
    const wanted = this.#wanted();
    if (!wanted) return;
    if (!this.#isActive) return this.#compare();
    this.isFitted = true;
    if (wanted.cols === this.terminal.cols && wanted.rows === this.terminal.rows) return;
    this.#setSize(wanted.cols, wanted.rows);
    clearTimeout(this.#resizeTimer);
    this.#resizeTimer = setTimeout(() => this.tellSize(), RESIZE_PAUSE_MS);
  }

  /** Says how large this window is, if it is the one that counts. */
  tellSize(): void {
    if (!this.#isActive || !this.isWritable) return;
    const { cols, rows } = this.terminal;
    this.#sent = [...this.#sent, `${cols}x${rows}`].slice(-SIZES_KEPT);
    this.#events.resize(cols, rows);
  }

  setFontSize(size: number): void {
    if (this.terminal.options.fontSize === size) return;
    this.terminal.options.fontSize = size;
    this.refit();
  }

  find(text: string, direction: "next" | "previous", options: { regex: boolean; caseSensitive: boolean }): void {
    const wanted: ISearchOptions = {
      ...options,
      decorations: {
        matchBackground: this.#colours.match,
        matchOverviewRuler: this.#colours.match,
        activeMatchBackground: this.#colours.active,
        activeMatchColorOverviewRuler: this.#colours.active,
      },
    };
    if (text === "" || !this.#isSearchable(text, options.regex)) return this.endSearch();
    // The search takes the same text for the same search, whatever else is asked for.
    const kind = `${options.regex} ${options.caseSensitive}`;
    if (kind !== this.#searchKind) this.#search.clearDecorations();
    this.#searchKind = kind;
    if (direction === "next") this.#search.findNext(text, wanted);
    else this.#search.findPrevious(text, wanted);
  }

  endSearch(): void {
    this.#search.clearDecorations();
    this.found = { count: 0, at: 0 };
  }

  /** Keys from the touch bar. */
  press(keys: string): void {
    if (!this.isWritable) return;
    this.claim();
    this.#events.input(keys);
    this.terminal.scrollToBottom();
  }

  /** A program that does not know pasting from typing would run each line at once: then the person is asked. */
  async paste(text: string): Promise<void> {
    if (text === "" || !this.isWritable) return;
    const lines = text.trimEnd().split(/\r\n|\r|\n/).length;
    if (lines > 1 && !this.terminal.modes.bracketedPasteMode) {
      if (!(await confirm({
        title: `Paste ${lines} lines?`,
        text: "This program takes each line as if you had typed it and pressed Enter.",
        action: "Paste",
      }))) return;
    }
    this.claim();
    this.terminal.paste(text);
    this.terminal.focus();
  }

  async copy(): Promise<void> {
    await navigator.clipboard.writeText(this.terminal.getSelection());
  }

  dispose(): void {
    clearTimeout(this.#resizeTimer);
    this.terminal.dispose();
  }

  #typed(data: string): void {
    const isAnswer = isReply(data);
    // What is drawn again was answered when it was new, and only one window answers.
    if (isAnswer && (this.#redraws > 0 || !this.#isActive)) return;
    if (!this.isWritable) return;
    if (!isAnswer) this.claim();
    this.#events.input(this.isCtrlHeld && !isAnswer ? this.#withCtrl(data) : data);
  }

  #withCtrl(data: string): string {
    this.isCtrlHeld = false;
    const isLetter = data.length === 1 && /[a-z@[\\\]^_ ?]/i.test(data);
    if (!isLetter) return data;
    return data === "?" ? "\u007f" : String.fromCharCode(data.toUpperCase().charCodeAt(0) & 0x1f);
  }

  #key(event: KeyboardEvent): boolean {
    if (event.type !== "keydown") return true;
    const isMod = (event.ctrlKey || event.metaKey) && !event.altKey;
    const key = event.key.toLowerCase();
    if (isMod && key === "f") {
      event.preventDefault();
      this.isSearchOpen = true;
      return false;
    }
    // The browser pastes by itself, and the event comes to us.
    if (isMod && key === "v") return false;
    if (isMod && key === "c" && (event.shiftKey || (this.terminal.hasSelection() && !event.metaKey))) {
      event.preventDefault();
      void this.copy().catch(() => document.execCommand("copy"));
      if (!event.shiftKey) this.terminal.clearSelection();
      return false;
    }
    // A way out by keyboard, since Tab is the program's.
    if (isMod && event.shiftKey && key === "l") {
      event.preventDefault();
      this.leave();
      return false;
    }
    // On a Mac the app's own shortcuts are Cmd's, which no program knows.
    return !event.metaKey;
  }

  #links(line: number): ILink[] | undefined {
    const text = this.terminal.buffer.active.getLine(line - 1)?.translateToString(true);
    if (!text) return undefined;
    return linksIn(text).map(({ start, address }) => ({
      text: address,
      range: { start: { x: start + 1, y: line }, end: { x: start + address.length, y: line } },
      activate: () => this.#askLink(address),
    }));
  }

  /** What a program calls a link may lead anywhere: the person sees where before it opens. */
  #askLink(text: string): void {
    const address = openableAddress(text);
    if (!address) return toasts.add("This link is not an address of the web, so it is not opened.", { kind: "error" });
    const question = { title: "Open this link?", text: makeVisibleStrict(address), action: "Open in a new tab" };
    void confirm(question).then((isWanted) => {
      if (isWanted) window.open(address, "_blank", "noopener,noreferrer");
    });
  }

  #isSearchable(text: string, isRegex: boolean): boolean {
    if (!isRegex) return true;
    try {
      new RegExp(text);
      return true;
    } catch {
      // Half a regular expression, while it is being typed.
      return false;
    }
  }

  #wanted(): { cols: number; rows: number } | undefined {
    const proposed = this.#fit.proposeDimensions();
    if (!proposed || Number.isNaN(proposed.cols) || Number.isNaN(proposed.rows)) return undefined;
    return {
      cols: Math.min(SIZE.colsMax, Math.max(SIZE.colsMin, proposed.cols)),
      rows: Math.min(SIZE.rowsMax, Math.max(SIZE.rowsMin, proposed.rows)),
    };
  }

  #setSize(cols: number, rows: number): void {
    if (cols !== this.terminal.cols || rows !== this.terminal.rows) this.terminal.resize(cols, rows);
  }

  #compare(): void {
    const wanted = this.#wanted();
    if (wanted) this.isFitted = wanted.cols === this.terminal.cols && wanted.rows === this.terminal.rows;
  }
}
