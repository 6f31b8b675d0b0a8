import type { FsReadData } from "@quarterdeck/client";
import { errorText } from "../../lib/format.ts";
import { onMachine } from "../machine.ts";
import { imageType } from "../paths.ts";
import { bytesOf, fromField, type LineEnd, lineEndOf, PageDecoder, toField } from "./text.ts";

/** Larger files are shown page by page and not edited here. */
export const EDIT_BYTES_MAX = 2 << 20;

/** A picture that is larger is downloaded instead of shown. */
export const IMAGE_BYTES_MAX = 32 << 20;

export type FileKind = "loading" | "text" | "image" | "binary" | "directory" | "missing" | "failed";

/** What somebody has typed and not saved. It stays while the app is open, wherever they go meanwhile. */
class Drafts {
  #texts = $state<Record<string, string>>({});
  /** Of the file each was begun with: what is there later may be somebody else's. */
  #hashes = new Map<string, string | undefined>();

  static key(sessionId: string, path: string): string {
    return `${sessionId}\n${path}`;
  }

  get(sessionId: string, path: string): string | undefined {
    return this.#texts[Drafts.key(sessionId, path)];
  }

  /** The hash counts for a draft that begins; one that is there keeps its own. */
  set(sessionId: string, path: string, text: string | undefined, hash?: string): void {
    const key = Drafts.key(sessionId, path);
    if (text === undefined) {
      delete this.#texts[key];
      this.#hashes.delete(key);
    } else {
      if (this.#texts[key] === undefined) this.#hashes.set(key, hash);
      this.#texts[key] = text;
    }
  }

  /** The file that a draft was begun with, or that was saved of it since. */
  baseOf(sessionId: string, path: string): string | undefined {
    return this.#hashes.get(Drafts.key(sessionId, path));
  }

  rebase(sessionId: string, path: string, hash: string): void {
    const key = Drafts.key(sessionId, path);
    if (this.#hashes.has(key)) this.#hashes.set(key, hash);
  }

  /** What is unsaved goes with a file that gets another name. */
  move(sessionId: string, from: string, to: string): void {
    const text = this.get(sessionId, from);
    const hash = this.baseOf(sessionId, from);
    this.set(sessionId, from, undefined);
    this.set(sessionId, to, undefined);
    this.set(sessionId, to, text, hash);
  }

  /** Files of a session with something unsaved. */
  of(sessionId: string): string[] {
    const prefix = Drafts.key(sessionId, "");
    return Object.keys(this.#texts)
      .filter((key) => key.startsWith(prefix))
      .map((key) => key.slice(prefix.length));
  }

  get count(): number {
    return Object.keys(this.#texts).length;
  }
}

export const drafts = new Drafts();

addEventListener("beforeunload", (event) => {
  if (drafts.count > 0) event.preventDefault();
});

/** Somebody else has written the file meanwhile. */
export interface Conflict {
  /** Of the file as it is now; absent if it is gone. */
  hash?: string;
  text: string;
}

/** One file of the machine, as it is looked at and changed. */
export class OpenFile {
  readonly sessionId: string;
  readonly path: string;
  kind = $state<FileKind>("loading");
  error = $state<string>();
  size = $state(0);
  modifiedAt = $state(0);
  /** As far as it is read, as a text field shows it. */
  text = $state.raw("");
  nextOffset = $state<number>();
  isReading = $state(false);
  isSaving = $state(false);
  isMixed = $state(false);
  /** The machine has another text than the one that is being edited. */
  isChanged = $state(false);
  conflict = $state.raw<Conflict>();
  #hash: string | undefined;
  #lineEnd: LineEnd = "\n";
  #decoder = new PageDecoder();
  #reading = 0;
  /** What is being read now, or was last. */
  #underWay: Promise<void> = Promise.resolve();

  constructor(sessionId: string, path: string) {
    this.sessionId = sessionId;
    this.path = path;
  }

  get isEditable(): boolean {
    return this.kind === "text" && this.size <= EDIT_BYTES_MAX;
  }

  get draft(): string | undefined {
    return drafts.get(this.sessionId, this.path);
  }

  /** What the person types; equal to the file means nothing is unsaved. */
  set draft(text: string | undefined) {
    drafts.set(this.sessionId, this.path, text === this.text ? undefined : text, this.#hash);
  }

  load(): Promise<void> {
    this.#underWay = this.#load();
    return this.#underWay;
  }

  async #load(): Promise<void> {
    const reading = ++this.#reading;
    this.isReading = true;
    try {
      const stat = await onMachine(this.sessionId, "fs.stat", { path: this.path });
      if (reading !== this.#reading) return;
      this.size = stat.size;
      this.modifiedAt = stat.modified_at;
      this.error = undefined;
      if (!stat.exists) this.kind = "missing";
      else if (stat.is_dir) this.kind = "directory";
      else if (imageType(this.path) && stat.size <= IMAGE_BYTES_MAX) this.kind = "image";
      else await this.#readText(reading);
      // A draft of earlier is of the file as it was then.
      if (reading === this.#reading && this.draft !== undefined) await this.changedOutside();
    } catch (error) {
      if (reading !== this.#reading) return;
      this.kind = "failed";
      this.error = errorText(error);
    } finally {
      if (reading === this.#reading) this.isReading = false;
    }
  }

  /** Text of a picture that is text, too. */
  loadAsText(): Promise<void> {
    this.#underWay = this.#loadAsText();
    return this.#underWay;
  }

  async #loadAsText(): Promise<void> {
    const reading = ++this.#reading;
    this.isReading = true;
    try {
      await this.#readText(reading);
    } catch (error) {
      if (reading === this.#reading) this.error = errorText(error);
    } finally {
      if (reading === this.#reading) this.isReading = false;
    }
  }

  /** The next page of a large file. */
  async more(): Promise<void> {
    if (this.isReading || this.nextOffset === undefined) return;
    this.#underWay = this.#readOn(this.nextOffset);
    await this.#underWay;
  }

  async #readOn(offset: number): Promise<void> {
    const reading = this.#reading;
    this.isReading = true;
    try {
      const page = await this.#page(offset);
      if (reading === this.#reading) this.#take(page, this.text);
    } catch (error) {
      if (reading === this.#reading) this.error = errorText(error);
    } finally {
      if (reading === this.#reading) this.isReading = false;
    }
  }

  /** Reads the rest, so that all of it can be edited. */
  async readWhole(): Promise<boolean> {
    while (this.nextOffset !== undefined && !this.error) {
      // It may be read anew just now, because it changed on the machine.
      if (this.isReading) await this.#underWay;
      else await this.more();
    }
    if (this.kind !== "text" || this.error) return false;
    if (this.#hash === undefined) {
      const stat = await onMachine(this.sessionId, "fs.stat", { path: this.path, hash: true });
      this.#hash = stat.hash;
    }
    return true;
  }

  /** The machine says that the file changed. Without a draft we follow it. */
  async changedOutside(): Promise<void> {
    if (this.isSaving) return;
    if (this.draft === undefined) return this.load();
    try {
      const stat = await onMachine(this.sessionId, "fs.stat", { path: this.path, hash: true });
      this.isChanged = stat.hash !== this.#base;
    } catch {
      // It cannot be asked now. Saving looks again, and refuses to overwrite what somebody else wrote.
      this.isChanged = true;
    }
  }

  /** Writes the draft if the file is what was read. Returns whether it is saved; a conflict says what there is now. */
  async save(overwrite?: Conflict): Promise<boolean> {
    const draft = this.draft;
    if (draft === undefined) return true;
    const content = fromField(draft, this.#lineEnd);
    const expected = overwrite ? (overwrite.hash ?? "") : (this.#base ?? "");
    this.isSaving = true;
    this.error = undefined;
    try {
      const written = await onMachine(this.sessionId, "fs.write", { path: this.path, content, expected_hash: expected });
      this.#hash = written.hash;
      drafts.rebase(this.sessionId, this.path, written.hash);
      this.size = written.bytes_written;
      this.text = draft;
      this.nextOffset = undefined;
      this.kind = "text";
      this.conflict = undefined;
      this.isChanged = false;
      // More may have been typed while it was on its way.
      this.draft = this.draft ?? draft;
      return true;
    } catch (error) {
      await this.#examine(error, expected);
      return false;
    } finally {
      this.isSaving = false;
    }
  }

  /** What is on the machine now, against what was typed. */
  async compare(): Promise<void> {
    try {
      this.conflict = await this.#current();
    } catch (error) {
      this.error = errorText(error);
    }
  }

  /** Forgets what was typed and takes the file as it is. */
  async reload(): Promise<void> {
    drafts.set(this.sessionId, this.path, undefined);
    this.conflict = undefined;
    this.isChanged = false;
    await this.load();
  }

  /** The file that what is typed here changes. */
  get #base(): string | undefined {
    return this.draft === undefined ? this.#hash : drafts.baseOf(this.sessionId, this.path);
  }

  /** A refused write is a conflict if the file is not what was expected, otherwise an error. */
  async #examine(error: unknown, expected: string): Promise<void> {
    try {
      const current = await this.#current();
      if ((current.hash ?? "") !== expected) this.conflict = current;
      else this.error = errorText(error);
    } catch {
      this.error = errorText(error);
    }
  }

  async #current(): Promise<Conflict> {
    const stat = await onMachine(this.sessionId, "fs.stat", { path: this.path, hash: true });
    if (!stat.exists || stat.hash === undefined) return { text: "" };
    let text = "";
    let offset: number | undefined = 0;
    const decoder = new PageDecoder();
    while (offset !== undefined && text.length < EDIT_BYTES_MAX) {
      const page: FsReadData = await this.#page(offset);
      text += decoder.decode(bytesOf(page.content), page.next_offset === undefined).text;
      offset = page.next_offset;
    }
    return { hash: stat.hash, text: toField(text) };
  }

  async #readText(reading: number): Promise<void> {
    const page = await this.#page(0);
    if (reading !== this.#reading) return;
    this.#decoder = new PageDecoder();
    this.#take(page, "");
  }

  #page(offset: number): Promise<FsReadData> {
    return onMachine(this.sessionId, "fs.read", { path: this.path, offset, encoding: "base64" });
  }

  #take(page: FsReadData, before: string): void {
    const { text, isBinary } = this.#decoder.decode(bytesOf(page.content), page.next_offset === undefined);
    this.size = page.size;
    this.modifiedAt = page.modified_at;
    this.nextOffset = isBinary ? undefined : page.next_offset;
    this.kind = isBinary ? "binary" : "text";
    if (isBinary) return;
    const ends = lineEndOf(text);
    if (before === "") this.#lineEnd = ends.lineEnd;
    this.isMixed = (before !== "" && this.isMixed) || ends.isMixed;
    this.text = before + toField(text);
    this.#hash = page.hash;
  }
}
