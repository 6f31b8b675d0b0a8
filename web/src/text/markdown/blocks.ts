/**
 * The blocks of a text that grows. What is finished is never read again: while an answer streams, only its last block
 * is parsed and drawn anew.
 */
import type { Token } from "marked";
import { lex } from "./render.ts";
import { makeVisible } from "../visible/visible.ts";

export interface Block {
  readonly token: Token;
  /** The last one of a text that may still grow. */
  readonly isOpen: boolean;
}

/** Of a block that grows without end only this much is drawn until it is done. */
const OPEN_MAX = 24_000;

/** More than this of an open block is not even looked at until it is done. */
const UNREAD_MAX = 200_000;

/** An open fence: its code is shown as it comes, without parsing all of it for every piece. */
const OPEN_FENCE = /^ {0,3}(`{3,}|~{3,})([^\n`]*)\n/;

/** So many blocks stand together: what is done to one that grows is not done to all that stand before it. */
const GROUP = 24;

/** The blocks in groups; a group of which no block has changed is the same array as before. */
export function grouped(blocks: readonly Block[], before: readonly (readonly Block[])[]): readonly (readonly Block[])[] {
  const groups: (readonly Block[])[] = [];
  for (let at = 0; at < blocks.length; at += GROUP) {
    const group = blocks.slice(at, at + GROUP);
    const known = before[groups.length];
    groups.push(known?.length === group.length && group.every((block, index) => block === known[index]) ? known : group);
  }
  return groups;
}

export class BlockSplitter {
  private text = "";
  /** The visible form of the text behind `done`, and where in `text` it begins. */
  private done: Block[] = [];
  private doneTo = 0;
  private isDone = false;
  private hasDefinitions = false;
  private current: readonly Block[] = [];

  /** The blocks of the text as it is now; finished ones are the same objects as before. */
  update(text: string, isDone: boolean): readonly Block[] {
    if (text === this.text && isDone === this.isDone) return this.current;
    if (this.isDone || !isContinued(this.text, text)) this.reset();
    this.text = text;
    this.isDone = isDone;
    if (!isDone && text.length - this.doneTo > UNREAD_MAX) {
      const end = makeVisible(text.slice(-OPEN_MAX));
      this.current = [...this.done, { token: plainText(`… ${end}`), isOpen: true }];
      return this.current;
    }
    const tail = makeVisible(text.slice(this.doneTo));
    const open = isDone ? undefined : (openFence(tail) ?? hugeParagraph(tail));
    if (open) {
      this.current = [...this.done, { token: open, isOpen: true }];
      return this.current;
    }
    this.split(tail);
    return this.current;
  }

  /** How much of the text is not finished yet. */
  openLength(text: string): number {
    return text.length - this.doneTo;
  }

  private reset(): void {
    this.text = "";
    this.done = [];
    this.doneTo = 0;
    this.isDone = false;
    this.hasDefinitions = false;
  }

  private split(tail: string): void {
    const tokens = lex(tail);
    this.hasDefinitions ||= tokens.some((token) => token.type === "def");
    if (this.isDone && this.hasDefinitions && this.doneTo > 0) {
      // A link may be explained after its use: only the whole text knows where it goes.
      this.done = lex(makeVisible(this.text)).filter(isShown).map((token) => ({ token, isOpen: false }));
      this.doneTo = this.text.length;
      this.current = this.done;
      return;
    }
    const finished = this.isDone ? tokens.length : finishedCount(tokens, tail);
    let length = 0;
    const before = [...this.done];
    for (const token of tokens.slice(0, finished)) {
      length += token.raw.length;
      if (isShown(token)) before.push({ token, isOpen: false });
    }
    const rest = tokens.slice(finished).filter(isShown).map((token) => ({ token, isOpen: true }));
    this.current = [...before, ...rest];
    // Lengths of the visible text are those of the text only where nothing was made visible.
    const isSame = tail.length === this.text.length - this.doneTo;
    if (isSame && length > 0) {
      this.done = before;
      this.doneTo += length;
    }
  }
}

function isShown(token: Token): boolean {
  return token.type !== "space" && token.type !== "def";
}

/** How many of the tokens cannot change any more: those before a block of which a whole line is known. */
function finishedCount(tokens: readonly Token[], tail: string): number {
  const lastLineEnd = tail.lastIndexOf("\n");
  let finished = 0;
  let start = 0;
  tokens.forEach((token, index) => {
    // This one may go on itself; what is before it may not.
    if (token.type !== "space" && start <= lastLineEnd) finished = index;
    start += token.raw.length;
  });
  return finished;
}

function openFence(tail: string): Token | undefined {
  const match = OPEN_FENCE.exec(tail);
  if (!match) return undefined;
  const [head, fence = "", info = ""] = match;
  const body = tail.slice(head.length);
  const close = new RegExp(`(^|\\n) {0,3}${fence[0] === "~" ? "~" : "`"}{${fence.length},}[ \\t]*(\\n|$)`);
  if (close.test(body)) return undefined;
  return { type: "code", raw: tail, lang: info.trim(), text: lastPart(body.replace(/\n$/, "")) };
}

/** So much text without an end of a block: what it means can wait, reading all of it for every piece would not end. */
function hugeParagraph(tail: string): Token | undefined {
  if (tail.length <= OPEN_MAX || tail.includes("\n\n")) return undefined;
  return plainText(lastPart(tail));
}

function plainText(text: string): Token {
  return { type: "paragraph", raw: text, text, tokens: [{ type: "text", raw: text, text }] };
}

/** Whether the text is the same with more behind it. Of a long one only the seam is compared. */
function isContinued(before: string, text: string): boolean {
  if (before.length < UNREAD_MAX) return text.startsWith(before);
  const seam = before.length - 1000;
  return text.length >= before.length && text.slice(seam, before.length) === before.slice(seam);
}

function lastPart(text: string): string {
  return text.length <= OPEN_MAX ? text : `… ${text.slice(-OPEN_MAX)}`;
}
