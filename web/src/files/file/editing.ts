/** What Tab and Enter do in a field for code: each as one replacement, so that undo takes it back at once. */

export interface Selection {
  text: string;
  start: number;
  end: number;
}

export interface Edit {
  from: number;
  to: number;
  text: string;
  /** What is selected afterwards. */
  selection: [number, number];
}

const USUAL_INDENT = "  ";

/** How the text indents: a tab, or the smallest run of spaces it begins lines with. */
export function indentOf(text: string): string {
  let smallest: string | undefined;
  for (const line of text.split("\n", 500)) {
    if (line.startsWith("\t")) return "\t";
    const spaces = /^ {2,8}(?=\S)/.exec(line)?.[0];
    if (spaces && (smallest === undefined || spaces.length < smallest.length)) smallest = spaces;
  }
  return smallest ?? USUAL_INDENT;
}

function lineStart(text: string, at: number): number {
  return text.lastIndexOf("\n", at - 1) + 1;
}

/** A tab at the cursor, or all selected lines further in. */
export function indentLines({ text, start, end }: Selection, indent: string): Edit {
  if (start === end) return { from: start, to: end, text: indent, selection: [start + indent.length, start + indent.length] };
  const from = lineStart(text, start);
  const lines = text.slice(from, end).split("\n");
  const moved = lines.map((line, index) => (line === "" && index === lines.length - 1 ? line : indent + line)).join("\n");
  return { from, to: end, text: moved, selection: [start + indent.length, from + moved.length] };
}

/** The selected lines further out; nothing if there is nothing to take. */
export function outdentLines({ text, start, end }: Selection, indent: string): Edit | undefined {
  const from = lineStart(text, start);
  const lines = text.slice(from, end).split("\n");
  const leading = new RegExp(`^(?:\\t| {1,${indent === "\t" ? 4 : indent.length}})`);
  // The selection may begin behind the indent it is to take.
  const first = lineStart(text, start) + (leading.exec(text.slice(from))?.[0].length ?? 0);
  const to = Math.max(end, first);
  const moved = text.slice(from, to).split("\n").map((line) => line.replace(leading, "")).join("\n");
  const taken = to - from - moved.length;
  if (taken === 0) return undefined;
  const firstTaken = (lines[0]?.length ?? 0) - (lines[0]?.replace(leading, "").length ?? 0);
  const newStart = Math.max(from, start - firstTaken);
  return { from, to, text: moved, selection: [newStart, start === end ? newStart : Math.max(newStart, end - taken)] };
}

/** A new line with the indent of the one it comes from. */
export function newLine({ text, start, end }: Selection): Edit {
  const from = lineStart(text, start);
  const indent = /^[\t ]*/.exec(text.slice(from, start))?.[0] ?? "";
  const at = start + 1 + indent.length;
  return { from: start, to: end, text: `\n${indent}`, selection: [at, at] };
}
