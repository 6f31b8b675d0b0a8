/**
 * Output of programs as lines of coloured spans. Colours of the palette are classes, others are values for CSSOM;
 * everything else a terminal would obey is dropped, and what is left of controls is made visible.
 */
import { makeVisible } from "../visible/visible.ts";

export interface AnsiSpan {
  text: string;
  /** Names of classes (`ansi-fg-1`, `ansi-bold`…), empty for plain text. */
  classes: string;
  /** `#rrggbb`, only for colours that are not of the palette. */
  color?: string;
  background?: string;
}

export type AnsiLine = AnsiSpan[];

type Color = { index: number } | { value: string };

interface Style {
  color?: Color;
  background?: Color;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
  hidden: boolean;
  strike: boolean;
}

/** CSI, OSC, other string sequences, two-character escapes, carriage return, backspace, line feed. */
const CONTROL =
  /(?:\u001b\[|\u009b)([0-?]*)([ -/]*[@-~])|(?:\u001b\]|\u009d)[^\u0007\u001b\u009c]*(?:\u0007|\u001b\\|\u009c|$)|(?:\u001b[P^_X]|[\u0090\u0098\u009e\u009f])[^\u001b\u009c]*(?:\u001b\\|\u009c|$)|\u001b[ -/]*[0-~]|\r\n|\r|\n|\u0008/g;

function plain(): Style {
  return { bold: false, dim: false, italic: false, underline: false, inverse: false, hidden: false, strike: false };
}

/** One line while it is written: a carriage return goes back over it, as a progress bar does. */
class LineWriter {
  private cells: { character: string; style: Style }[] | undefined;
  private spans: { text: string; style: Style }[] = [];
  private column = 0;

  write(text: string, style: Style): void {
    if (!this.cells) {
      this.spans.push({ text, style });
      return;
    }
    for (const character of text) this.cells[this.column++] = { character, style };
  }

  /** Cells are needed only where something is written over. */
  private toCells(): { character: string; style: Style }[] {
    if (!this.cells) {
      this.cells = this.spans.flatMap(({ text, style }) => [...text].map((character) => ({ character, style })));
      this.column = this.cells.length;
      this.spans = [];
    }
    return this.cells;
  }

  carriageReturn(): void {
    this.toCells();
    this.column = 0;
  }

  backspace(): void {
    this.toCells();
    this.column = Math.max(0, this.column - 1);
  }

  eraseLine(mode: string): void {
    const cells = this.toCells();
    if (mode === "2") cells.fill({ character: " ", style: plain() }, 0, this.column);
    if (mode === "1") cells.fill({ character: " ", style: plain() }, 0, Math.min(this.column + 1, cells.length));
    else cells.length = Math.min(cells.length, this.column);
  }

  finish(): AnsiLine {
    const pieces = this.cells
      ? Array.from(this.cells, (cell) => ({ text: cell?.character ?? " ", style: cell?.style ?? plain() }))
      : this.spans;
    const line: AnsiLine = [];
    for (const { text, style } of pieces) {
      const span = spanOf(text, style);
      const last = line.at(-1);
      if (last && last.classes === span.classes && last.color === span.color && last.background === span.background) {
        last.text += span.text;
      } else if (span.text !== "") {
        line.push(span);
      }
    }
    for (const span of line) span.text = makeVisible(span.text);
    return line;
  }
}

function spanOf(text: string, style: Style): AnsiSpan {
  const classes: string[] = [];
  // Backgrounds of the palette are tints: plain text is readable on them, text in the colour of the page is not.
  const isTinted = style.color !== undefined && "index" in style.color;
  const inverted = style.background ?? (isTinted ? undefined : { index: -1 });
  const foreground = style.inverse ? inverted : style.color;
  const background = style.inverse ? (style.color ?? { index: -2 }) : style.background;
  const span: AnsiSpan = { text, classes: "" };
  if (foreground) {
    if ("value" in foreground) span.color = foreground.value;
    else classes.push(foreground.index < 0 ? "ansi-fg-inverse" : `ansi-fg-${foreground.index}`);
  }
  if (background) {
    if ("value" in background) span.background = background.value;
    else classes.push(background.index < 0 ? "ansi-bg-inverse" : `ansi-bg-${background.index}`);
  }
  for (const name of ["bold", "dim", "italic", "underline", "strike"] as const) {
    if (style[name]) classes.push(`ansi-${name}`);
  }
  // Text that a terminal would hide is shown: a person must see what a program printed.
  if (style.hidden) classes.push("ansi-dim");
  span.classes = classes.join(" ");
  return span;
}

function paletteColor(index: number): Color | undefined {
  if (!Number.isInteger(index) || index < 0 || index > 255) return undefined;
  if (index < 16) return { index };
  if (index >= 232) {
    const gray = 8 + (index - 232) * 10;
    return { value: hex(gray, gray, gray) };
  }
  const level = (step: number): number => (step === 0 ? 0 : 55 + step * 40);
  const cube = index - 16;
  return { value: hex(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)) };
}

function hex(...parts: number[]): string {
  return `#${parts.map((part) => Math.max(0, Math.min(255, part | 0)).toString(16).padStart(2, "0")).join("")}`;
}

/** `38;5;N`, `38;2;R;G;B` and the same with colons. Returns the colour and how many numbers it took. */
function extendedColor(codes: number[], at: number): [Color | undefined, number] {
  if (codes[at + 1] === 5) return [paletteColor(codes[at + 2] ?? -1), 2];
  if (codes[at + 1] === 2) {
    return [{ value: hex(codes[at + 2] ?? 0, codes[at + 3] ?? 0, codes[at + 4] ?? 0) }, 4];
  }
  return [undefined, 1];
}

const SWITCHES: Record<number, [Exclude<keyof Style, "color" | "background">, boolean][]> = {
  1: [["bold", true]],
  2: [["dim", true]],
  3: [["italic", true]],
  4: [["underline", true]],
  7: [["inverse", true]],
  8: [["hidden", true]],
  9: [["strike", true]],
  21: [["underline", true]],
  22: [["bold", false], ["dim", false]],
  23: [["italic", false]],
  24: [["underline", false]],
  27: [["inverse", false]],
  28: [["hidden", false]],
  29: [["strike", false]],
};

function selectGraphics(style: Style, parameters: string): Style {
  // With colons an empty place for the colour space may stand before red.
  const normal = parameters.replace(/([34]8):2:\d*:(\d+):(\d+):(\d+)/g, "$1;2;$2;$3;$4").replace(/4:0/g, "24");
  const codes = normal.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  let next: Style = { ...style };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] ?? 0;
    if (code === 0) next = plain();
    for (const [name, value] of SWITCHES[code] ?? []) next[name] = value;
    if (code >= 30 && code <= 37) next.color = { index: code - 30 };
    else if (code >= 90 && code <= 97) next.color = { index: code - 82 };
    else if (code >= 40 && code <= 47) next.background = { index: code - 40 };
    else if (code >= 100 && code <= 107) next.background = { index: code - 92 };
    else if (code === 39) delete next.color;
    else if (code === 49) delete next.background;
    else if (code === 38 || code === 48) {
      const [color, taken] = extendedColor(codes, at);
      if (color) next[code === 38 ? "color" : "background"] = color;
      at += taken;
    }
  }
  return next;
}

/** All lines of a program's output. */
export function parseAnsi(text: string): AnsiLine[] {
  const lines: AnsiLine[] = [];
  let line = new LineWriter();
  let style = plain();
  let end = 0;
  for (const match of text.matchAll(CONTROL)) {
    if (match.index > end) line.write(text.slice(end, match.index), style);
    end = match.index + match[0].length;
    const [whole, parameters = "", final = ""] = match;
    if (whole === "\n" || whole === "\r\n") {
      lines.push(line.finish());
      line = new LineWriter();
    } else if (whole === "\r") line.carriageReturn();
    else if (whole === "\u0008") line.backspace();
    else if (final === "m" && /^[\d;:]*$/.test(parameters)) style = selectGraphics(style, parameters);
    else if (final === "K") line.eraseLine(parameters);
  }
  if (end < text.length) line.write(text.slice(end), style);
  const last = line.finish();
  // A line feed at the end ends a line and begins none.
  if (last.length > 0 || lines.length === 0) lines.push(last);
  return lines;
}
