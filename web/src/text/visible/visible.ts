/**
 * Text of agents may hold characters that a screen does not show but obeys: controls, direction overrides, and in
 * commands also what takes no room at all. A person must decide about what is really there, so they become visible.
 */

/** Controls (but tab and line feed), direction embeddings, overrides and isolates. */
const HIDDEN = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u202A-\u202E\u2066-\u2069\uFFF9-\uFFFB]/g;

/** Also what is invisible or breaks a line without looking like it: needed where somebody approves what they read. */
const HIDDEN_STRICT =
  /[\u0000-\u0008\u000B-\u001F\u007F-\u00A0\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u2000-\u200F\u2028-\u202F\u205F-\u206F\u3000\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF9-\uFFFB]|[\u{1D173}-\u{1D17A}\u{E0000}-\u{E0FFF}]/gu;

/** The names of the controls; there are characters for pictures of them, which many fonts do not have. */
const NAMES =
  "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US".split(" ");

function shown(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  const name = code === 0x7f ? "DEL" : NAMES[code];
  if (name !== undefined) return `\u2039${name}\u203A`;
  return `\u2039U+${code.toString(16).toUpperCase().padStart(4, "0")}\u203A`;
}

/** The text with controls and direction tricks made visible. Line ends become line feeds. */
export function makeVisible(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(HIDDEN, shown);
}

/** A piece of a text that is shown; `isHidden` pieces are stand-ins for what would not be seen. */
export interface VisiblePiece {
  text: string;
  isHidden: boolean;
}

/** As `makeVisible`, stricter, and in pieces, so that the stand-ins can be marked. Nothing is left out. */
export function visiblePieces(text: string): VisiblePiece[] {
  const pieces: VisiblePiece[] = [];
  let end = 0;
  for (const match of text.matchAll(HIDDEN_STRICT)) {
    if (match.index > end) pieces.push({ text: text.slice(end, match.index), isHidden: false });
    pieces.push({ text: shown(match[0]), isHidden: true });
    end = match.index + match[0].length;
  }
  if (end < text.length) pieces.push({ text: text.slice(end), isHidden: false });
  return pieces;
}

/** As `visiblePieces`, as one text. */
export function makeVisibleStrict(text: string): string {
  return visiblePieces(text).map((piece) => piece.text).join("");
}

/** How many characters of the text would not be seen. */
export function hiddenCount(text: string): number {
  return visiblePieces(text).filter((piece) => piece.isHidden).length;
}
