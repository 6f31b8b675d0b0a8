import type { DiffPiece } from "../text/diff/diff.ts";
import type { CodeLine } from "../text/code/highlight.ts";

/** A part of a line with one colour, changed or not. */
export interface Segment {
  text: string;
  className: string;
  isChanged: boolean;
}

/** Colours and changed words of one line together. */
export function segments(text: string, colours: CodeLine | undefined, pieces: readonly DiffPiece[] | undefined): Segment[] {
  const isWhole = colours?.map((token) => token.text).join("") === text;
  const tokens = isWhole && colours ? colours : [{ text, className: "" }];
  if (!pieces) return tokens.map((token) => ({ ...token, isChanged: false }));
  const found: Segment[] = [];
  let piece = 0;
  let used = 0;
  for (const token of tokens) {
    let rest = token.text;
    while (rest !== "") {
      const current = pieces[piece];
      const room = current ? current.text.length - used : rest.length;
      const part = rest.slice(0, room);
      found.push({ text: part, className: token.className, isChanged: current?.isChanged ?? false });
      rest = rest.slice(part.length);
      used += part.length;
      if (current && used >= current.text.length) {
        piece += 1;
        used = 0;
      }
    }
  }
  return found;
}
