import type { GitDiffData, GitDiffFile, GitFile, GitStatusData } from "@quarterdeck/client";
import { errorText } from "../lib/format.ts";
import { type FileDiff, parseUnified } from "../text/diff/diff.ts";
import { onMachine } from "../files/machine.ts";

/** Changed lines above which a file is folded until somebody asks for it. */
const FOLD_LINES = 500;

/** More new files than this are read one by one, when somebody looks: a directory that should be ignored has thousands. */
const UNTRACKED_MAX = 300;

export type Section = "conflicted" | "staged" | "unstaged" | "untracked" | "base";

export const SECTION_TITLES: Record<Section, string> = {
  conflicted: "Conflicts",
  staged: "Staged",
  unstaged: "Not staged",
  untracked: "Untracked",
  base: "Since the commit",
};

const WORDS: Record<string, string> = {
  A: "added",
  C: "copied",
  D: "deleted",
  M: "modified",
  R: "renamed",
  T: "another kind of file",
  U: "conflict",
  "?": "new",
};

/** One file in one section, and its diff as far as it was read. */
export class ChangedFile {
  readonly section: Section;
  readonly path: string;
  readonly from: string | undefined;
  readonly base: string | undefined;
  letter = $state("");
  added = $state<number>();
  removed = $state<number>();
  diff = $state.raw<FileDiff>();
  nextOffset = $state<number>();
  error = $state<string>();
  isLoading = $state(false);
  /** Nothing until somebody decides; then what they said. */
  #folded = $state<boolean>();
  #patch: string | undefined;
  /** Somebody looked at it, or wanted to. */
  #isWanted = false;
  #session: string;

  constructor(sessionId: string, section: Section, file: GitFile, base?: string) {
    this.#session = sessionId;
    this.section = section;
    this.path = file.path;
    this.from = file.from;
    this.letter = section === "staged" ? file.staged : section === "conflicted" ? "U" : file.unstaged;
    this.base = base;
  }

  get key(): string {
    return `${this.section}:${this.path}`;
  }

  /** What git's letter means. */
  get word(): string {
    return WORDS[this.letter] ?? "changed";
  }

  get isFolded(): boolean {
    return this.#folded ?? this.isLarge;
  }

  set isFolded(folded: boolean) {
    this.#folded = folded;
  }

  get isLarge(): boolean {
    return (this.added ?? 0) + (this.removed ?? 0) > FOLD_LINES;
  }

  async load(): Promise<void> {
    this.#isWanted = true;
    if (this.diff || this.isLoading) return;
    if (this.#patch === undefined) await this.#read(0);
    else this.#parse();
  }

  async more(): Promise<void> {
    if (this.nextOffset !== undefined && !this.isLoading) await this.#read(this.nextOffset);
  }

  /** Takes what a diff of many files has of this one. The same again changes nothing on the screen. */
  take(patch: string): void {
    if (patch === this.#patch && this.nextOffset === undefined) return;
    this.#patch = patch;
    this.nextOffset = undefined;
    this.error = undefined;
    if (this.diff) this.#parse();
  }

  /** What was read may not be true any more, and is not in the diff of many files. */
  async refresh(): Promise<void> {
    if (this.diff && !this.isLoading) await this.#read(0);
    else this.#patch = undefined;
  }

  count(file: Pick<GitDiffFile, "added" | "removed"> | undefined): void {
    this.added = file?.added;
    this.removed = file?.removed;
  }

  /** Takes over what the same file of an older list has shown, or was about to show. */
  continues(before: ChangedFile): void {
    this.diff = before.diff;
    this.#patch = before.#patch;
    this.nextOffset = before.nextOffset;
    this.#folded = before.#folded;
    this.added = before.added;
    this.removed = before.removed;
    if (before.#isWanted) void this.load();
  }

  async #read(offset: number): Promise<void> {
    this.isLoading = true;
    this.error = undefined;
    const parameters = {
      path: this.path,
      offset,
      ...(this.section === "staged" ? { staged: true } : {}),
      ...(this.section === "untracked" ? { untracked: true } : {}),
      ...(this.base ? { base: this.base, untracked: true } : {}),
    };
    try {
      const page = await onMachine(this.#session, "git.diff", parameters);
      this.#patch = offset === 0 ? page.stdout : (this.#patch ?? "") + page.stdout;
      this.nextOffset = page.next_offset;
      this.#parse();
      // Of a file in conflict git counts the lines that differ from ours; the others are shown too.
      if (this.section === "conflicted") this.count(this.diff);
      else if (page.files[0]) this.count(page.files[0]);
    } catch (error) {
      this.error = errorText(error);
    } finally {
      this.isLoading = false;
    }
  }

  #parse(): void {
    const [diff] = parseUnified(this.#patch ?? "");
    this.diff = diff ?? { path: this.path, change: "modified", isBinary: false, rows: [], added: 0, removed: 0 };
  }
}

/** What git says about the directory of a session. */
export class Changes {
  readonly sessionId: string;
  status = $state.raw<GitStatusData>();
  error = $state<string>();
  isLoading = $state(false);
  files = $state.raw<ChangedFile[]>([]);
  /** A commit the directory is compared with, instead of the index. */
  base = $state<string>();
  #isAgain = false;

  constructor(sessionId: string) {
    this.sessionId = sessionId;
  }

  sections: { section: Section; files: ChangedFile[] }[] = $derived.by(() => {
    const order: Section[] = this.base ? ["base"] : ["conflicted", "staged", "unstaged", "untracked"];
    return order
      .map((section) => ({ section, files: this.files.filter((file) => file.section === section) }))
      .filter(({ files }) => files.length > 0);
  });

  async load(): Promise<void> {
    if (this.isLoading) {
      // Something changed while we looked: look once more.
      this.#isAgain = true;
      return;
    }
    this.isLoading = true;
    try {
      this.status = await onMachine(this.sessionId, "git.status", {});
      if (this.base) await this.#readSince(this.base);
      else await this.#readOpen(this.status.files);
      this.error = undefined;
    } catch (error) {
      this.error = errorText(error);
    } finally {
      this.isLoading = false;
    }
    if (this.#isAgain) {
      this.#isAgain = false;
      await this.load();
    }
  }

  async compareWith(base: string | undefined): Promise<void> {
    this.base = base;
    this.files = [];
    await this.load();
  }

  /** What is not committed. The list is there first, the lines follow. */
  async #readOpen(listed: readonly GitFile[]): Promise<void> {
    const files = sorted(this.sessionId, listed);
    this.#replace(files);
    const staged = files.filter((file) => file.section === "staged");
    // To look at new files git needs an index in which nothing is in conflict any more.
    for (const file of files.filter(({ section }) => section === "conflicted")) void file.refresh();
    const others = files.filter(({ section }) => section === "unstaged" || section === "untracked");
    if (staged.length > 0) this.#share(staged, await onMachine(this.sessionId, "git.diff", { staged: true }));
    const untracked = others.filter((file) => file.section === "untracked");
    if (untracked.length <= UNTRACKED_MAX) {
      if (others.length > 0) this.#share(others, await onMachine(this.sessionId, "git.diff", { untracked: true }));
      return;
    }
    const tracked = others.filter((file) => file.section !== "untracked");
    if (tracked.length > 0) this.#share(tracked, await onMachine(this.sessionId, "git.diff", {}));
    for (const file of untracked) void file.refresh();
  }

  async #readSince(base: string): Promise<void> {
    const page = await onMachine(this.sessionId, "git.diff", { base, untracked: true });
    if (base !== this.base) return;
    const files = page.files.map((one) => {
      const renamed = one.from ? { from: one.from } : {};
      const file = { path: one.path, ...renamed, staged: ".", unstaged: one.from ? "R" : "M", conflicted: false };
      return new ChangedFile(this.sessionId, "base", file, base);
    });
    this.#replace(files);
    this.#share(files, page);
  }

  #replace(files: ChangedFile[]): void {
    const known = new Map(this.files.map((file) => [file.key, file]));
    for (const file of files) {
      const before = known.get(file.key);
      if (before) file.continues(before);
    }
    this.files = files;
  }

  /** Gives each file its part of a diff of many. What did not fit is read for each by itself, when it is looked at. */
  #share(files: readonly ChangedFile[], page: GitDiffData): void {
    const patches = patchesOf(page);
    const counts = new Map(page.files.map((file) => [file.path, file]));
    for (const file of files) {
      file.count(counts.get(file.path));
      const patch = patches.get(file.path);
      if (patch === undefined) {
        void file.refresh();
        continue;
      }
      file.take(patch);
      if (file.section !== "base") continue;
      if (/^new file mode/m.test(patch.slice(0, 400))) file.letter = "A";
      else if (/^deleted file mode/m.test(patch.slice(0, 400))) file.letter = "D";
    }
  }
}

/** The parts of a diff by the path of their file; the last one of a page that was cut is not whole. */
function patchesOf(page: GitDiffData): Map<string, string> {
  const parts = page.stdout.split(/^(?=diff --(?:git|cc|combined) )/m).filter((part) => part !== "");
  if (page.next_offset !== undefined) parts.pop();
  return new Map(parts.map((part) => [pathIn(part), part]));
}

/** Only the head of a part is read here: its lines are, when somebody looks at them. */
function pathIn(patch: string): string {
  const combined = /^diff --(?:cc|combined) (.*)$/m.exec(patch.split("\n", 1)[0] ?? "");
  if (combined) return combined[1] ?? "";
  const body = patch.search(/^@@ /m);
  return parseUnified(body < 0 ? patch : patch.slice(0, body))[0]?.path ?? "";
}

function sorted(sessionId: string, files: readonly GitFile[]): ChangedFile[] {
  const found: ChangedFile[] = [];
  for (const file of files) {
    if (file.conflicted) found.push(new ChangedFile(sessionId, "conflicted", file));
    else if (file.unstaged === "?") found.push(new ChangedFile(sessionId, "untracked", file));
    else {
      if (file.staged !== ".") found.push(new ChangedFile(sessionId, "staged", file));
      if (file.unstaged !== ".") found.push(new ChangedFile(sessionId, "unstaged", file));
    }
  }
  return found;
}
