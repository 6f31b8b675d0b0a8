/** Differences as rows, from a unified diff or from two texts. */
import { makeVisible } from "../visible/visible.ts";

export interface DiffPiece {
  text: string;
  isChanged: boolean;
}

export interface DiffRow {
  /** `hunk` stands for lines left out; `note` is what git says beside lines. */
  kind: "context" | "add" | "del" | "hunk" | "note";
  text: string;
  oldLine?: number;
  newLine?: number;
  /** The words that differ from the line it replaces, where there is one. */
  pieces?: DiffPiece[];
}

export interface FileDiff {
  path: string;
  /** Where a renamed file was. */
  from?: string;
  change: "modified" | "added" | "deleted" | "renamed";
  isBinary: boolean;
  rows: DiffRow[];
  added: number;
  removed: number;
}

/** A merge is compared with each of its parents: one more `@`, and one more sign before each line, for each. */
const HUNK = /^(@@+) -(\d+)(?:,\d+)? (?:-\d+(?:,\d+)? )*\+(\d+)(?:,\d+)? \1/;
/** Longer lines are not compared word by word. */
const WORDS_MAX = 500;

class FileReader {
  readonly file: FileDiff = { path: "", change: "modified", isBinary: false, rows: [], added: 0, removed: 0 };
  private oldLine = 0;
  private newLine = 0;
  private isInHunk = false;
  private signs = 1;

  head(line: string): void {
    if (line.startsWith("new file")) this.file.change = "added";
    else if (line.startsWith("deleted file")) this.file.change = "deleted";
    else if (line.startsWith("rename from ")) {
      this.file.change = "renamed";
      this.file.from = unquote(line.slice(12));
    } else if (line.startsWith("rename to ")) this.file.path = unquote(line.slice(10));
    else if (line.startsWith("--- ")) this.oldPath(pathOf(line.slice(4)));
    else if (line.startsWith("+++ ")) this.newPath(pathOf(line.slice(4)));
    else if (line.startsWith("Binary files") || line.startsWith("GIT binary patch")) this.file.isBinary = true;
    const hunk = HUNK.exec(line);
    if (hunk) {
      this.isInHunk = true;
      this.signs = (hunk[1]?.length ?? 2) - 1;
      this.oldLine = Number(hunk[2]);
      this.newLine = Number(hunk[3]);
      this.file.rows.push({ kind: "hunk", text: makeVisible(line) });
    }
  }

  private oldPath(path: string | undefined): void {
    if (path === undefined) this.file.change = "added";
    else this.file.path = path;
  }

  private newPath(path: string | undefined): void {
    if (path === undefined) this.file.change = "deleted";
    else this.file.path = path;
  }

  line(line: string): void {
    if (!this.isInHunk || HUNK.test(line)) {
      this.head(line);
      return;
    }
    const { file } = this;
    if (line.startsWith("\\")) {
      file.rows.push({ kind: "note", text: makeVisible(line.slice(1)).trim() });
      return;
    }
    const signs = line.slice(0, this.signs);
    const text = makeVisible(line.slice(this.signs));
    if (signs.includes("+")) {
      file.rows.push({ kind: "add", text, newLine: this.newLine++ });
      file.added += 1;
      if (signs.startsWith(" ")) this.oldLine += 1;
    } else if (signs.includes("-")) {
      file.rows.push({ kind: "del", text, ...(signs.startsWith("-") ? { oldLine: this.oldLine++ } : {}) });
      file.removed += 1;
    } else {
      file.rows.push({ kind: "context", text, oldLine: this.oldLine++, newLine: this.newLine++ });
    }
  }
}

function pathOf(name: string): string | undefined {
  const path = unquote(name.replace(/\t.*$/, ""));
  return path === "/dev/null" ? undefined : path.replace(/^[abciwo]\//, "");
}

/** git quotes names with unusual characters, bytes as octal numbers. */
function unquote(name: string): string {
  if (!name.startsWith('"') || !name.endsWith('"')) return name;
  const bytes: number[] = [];
  const inner = name.slice(1, -1);
  const plain: Record<string, string> = { n: "\n", t: "\t", r: "\r", '"': '"', "\\": "\\" };
  for (let at = 0; at < inner.length; at += 1) {
    const octal = /^\\([0-7]{3})/.exec(inner.slice(at, at + 4));
    if (octal) {
      bytes.push(Number.parseInt(octal[1] ?? "0", 8));
      at += 3;
      continue;
    }
    const isEscape = inner[at] === "\\";
    const character = isEscape ? (plain[inner[at + 1] ?? ""] ?? "") : (inner[at] ?? "");
    if (isEscape) at += 1;
    bytes.push(...new TextEncoder().encode(character));
  }
  return new TextDecoder().decode(new Uint8Array(bytes));
}

/** The files of a unified diff, git's or plain. */
export function parseUnified(patch: string): FileDiff[] {
  const readers: FileReader[] = [];
  let reader: FileReader | undefined;
  const lines = patch.split("\n");
  if (lines.at(-1) === "") lines.pop();
  lines.forEach((line, index) => {
    const isGitHead = line.startsWith("diff --git ");
    const isPlainHead = line.startsWith("--- ") && (lines[index + 1]?.startsWith("+++ ") ?? false);
    if (isGitHead || !reader || (isPlainHead && reader.file.rows.length > 0)) {
      reader = new FileReader();
      readers.push(reader);
    }
    if (isGitHead) {
      const names = /^diff --git (?:"?a\/.*"? )"?b\/(.*?)"?$/.exec(line);
      reader.file.path = names?.[1] ?? "";
    } else {
      reader.line(line);
    }
  });
  return readers.map(({ file }) => ({ ...file, rows: withWords(file.rows) }));
}

/** Marks the words that changed where a line was replaced by one that is much like it. */
export function withWords(rows: DiffRow[]): DiffRow[] {
  const result = [...rows];
  let at = 0;
  while (at < rows.length) {
    if (rows[at]?.kind !== "del") {
      at += 1;
      continue;
    }
    let end = at;
    while (rows[end]?.kind === "del") end += 1;
    let last = end;
    while (rows[last]?.kind === "add") last += 1;
    if (last - end === end - at) {
      for (let step = 0; step < end - at; step += 1) {
        const [before, after] = [rows[at + step], rows[end + step]];
        const pieces = before && after ? changedPieces(before.text, after.text) : undefined;
        if (!before || !after || !pieces) continue;
        result[at + step] = { ...before, pieces: pieces[0] };
        result[end + step] = { ...after, pieces: pieces[1] };
      }
    }
    at = Math.max(last, at + 1);
  }
  return result;
}

/** What is equal at both ends stays, the middle has changed. Nothing where the lines have too little in common. */
function changedPieces(before: string, after: string): [DiffPiece[], DiffPiece[]] | undefined {
  if (before.length > WORDS_MAX || after.length > WORDS_MAX) return undefined;
  const [from, to] = [words(before), words(after)];
  const shorter = Math.min(from.length, to.length);
  let start = 0;
  while (start < shorter && from[start] === to[start]) start += 1;
  let end = 0;
  while (end < shorter - start && from[from.length - 1 - end] === to[to.length - 1 - end]) end += 1;
  const common = from.slice(0, start).join("").length + from.slice(from.length - end).join("").length;
  if (common * 3 < Math.max(before.length, after.length)) return undefined;
  const cut = (list: string[]): DiffPiece[] =>
    [
      { text: list.slice(0, start).join(""), isChanged: false },
      { text: list.slice(start, list.length - end).join(""), isChanged: true },
      { text: list.slice(list.length - end).join(""), isChanged: false },
    ].filter((piece) => piece.text !== "");
  return [cut(from), cut(to)];
}

function words(line: string): string[] {
  return line.match(/\w+|\s+|[^\w\s]/gu) ?? [];
}

/** The differences of two texts, with some lines around them. Texts that have nothing in common are shown one after the other. */
export async function diffTexts(before: string, after: string, context = 3): Promise<FileDiff> {
  const { structuredPatch } = await import("diff");
  const patch = structuredPatch("a", "b", before, after, undefined, undefined, { context, maxEditLength: 4000, timeout: 500 });
  const reader = new FileReader();
  reader.file.change = before === "" ? "added" : after === "" ? "deleted" : "modified";
  if (!patch) {
    reader.line(`@@ -1 +1 @@`);
    for (const line of linesOf(before)) reader.line(`-${line}`);
    for (const line of linesOf(after)) reader.line(`+${line}`);
  }
  for (const hunk of patch?.hunks ?? []) {
    reader.line(`@@ -${hunk.oldStart},${hunk.oldLines} +${hunk.newStart},${hunk.newLines} @@`);
    for (const line of hunk.lines) reader.line(line);
  }
  return { ...reader.file, rows: withWords(reader.file.rows) };
}

function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}
