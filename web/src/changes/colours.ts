import type { DiffRow } from "../text/diff/diff.ts";
import { type CodeLine, highlight, languageOfPath } from "../text/code/highlight.ts";

/** More rows than this are shown without colours. */
const ROWS_MAX = 2000;

/**
 * Colours for the rows of a diff. Each side of a hunk is coloured as a text of its own, so that a string that was
 * removed does not colour what came after it.
 */
export async function colourRows(rows: readonly DiffRow[], path: string, signal: AbortSignal): Promise<Map<DiffRow, CodeLine>> {
  const coloured = new Map<DiffRow, CodeLine>();
  const language = languageOfPath(path);
  if (!language || rows.length > ROWS_MAX) return coloured;
  for (const hunk of hunksOf(rows)) {
    for (const side of ["old", "new"] as const) {
      const mine = hunk.filter((row) => row.kind === "context" || row.kind === (side === "old" ? "del" : "add"));
      const lines = await highlight(mine.map((row) => row.text).join("\n"), language, signal);
      if (signal.aborted) return coloured;
      lines?.forEach((line, index) => {
        const row = mine[index];
        if (row && (side === "new" || row.kind === "del")) coloured.set(row, line);
      });
    }
  }
  return coloured;
}

function hunksOf(rows: readonly DiffRow[]): DiffRow[][] {
  const hunks: DiffRow[][] = [];
  for (const row of rows) {
    if (row.kind === "hunk" || hunks.length === 0) hunks.push([]);
    if (row.kind !== "hunk" && row.kind !== "note") hunks.at(-1)?.push(row);
  }
  return hunks;
}

/** A row of two sides: what was and what is; lines that replace each other stand beside each other. */
export interface Pair {
  left?: DiffRow;
  right?: DiffRow;
  /** A line over both sides. */
  wide?: DiffRow;
}

export function pairs(rows: readonly DiffRow[]): Pair[] {
  const found: Pair[] = [];
  let removed: DiffRow[] = [];
  let added: DiffRow[] = [];
  const flush = (): void => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) {
      const [left, right] = [removed[at], added[at]];
      found.push({ ...(left ? { left } : {}), ...(right ? { right } : {}) });
    }
    removed = [];
    added = [];
  };
  for (const row of rows) {
    if (row.kind === "del") {
      if (added.length > 0) flush();
      removed.push(row);
    } else if (row.kind === "add") added.push(row);
    else {
      flush();
      found.push(row.kind === "context" ? { left: row, right: row } : { wide: row });
    }
  }
  flush();
  return found;
}
