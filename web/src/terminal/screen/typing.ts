/**
 * What is typed into a run goes out in order, each key once. Keys that come while others are under way go together:
 * so a fast typist costs few commands, and a slow line keeps the order.
 */

/** Bytes of one command, in UTF-16 units; a paste is cut into such pieces. */
const PIECE_LENGTH_MAX = 8 * 1024;

/** Commands under way at a time. More than one, so that a far machine echoes keys as they come. */
const UNDER_WAY_MAX = 4;

/** Sends one piece under a key of its own, so that it can be sent again after a lost connection and arrives once. */
export type SendKeys = (text: string, key: string) => Promise<unknown>;

export class Typing {
  #send: SendKeys;
  #failed: (error: unknown, lost: string) => void;
  #waiting = "";
  #underWay = 0;
  #isScheduled = false;
  /** Grows when what was typed before is given up, so that late answers do not count. */
  #life = 0;
  #count = 0;
  #name = crypto.randomUUID();

  constructor(send: SendKeys, failed: (error: unknown, lost: string) => void) {
    this.#send = send;
    this.#failed = failed;
  }

  /** Characters that have not been sent yet. */
  get waiting(): number {
    return this.#waiting.length;
  }

  type(text: string): void {
    this.#waiting += text;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    // What one key press or one paste makes comes in several calls of the same task.
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.#go();
    });
  }

  /** Forgets what has not gone out. */
  clear(): void {
    this.#waiting = "";
    this.#life += 1;
    this.#underWay = 0;
  }

  #go(): void {
    while (this.#waiting !== "" && this.#underWay < UNDER_WAY_MAX) {
      const piece = this.#take();
      // A long piece goes alone: the program must be able to take it before more comes.
      const isLong = piece.length >= PIECE_LENGTH_MAX;
      if (isLong && this.#underWay > 0) {
        this.#waiting = piece + this.#waiting;
        return;
      }
      this.#dispatch(piece);
      if (isLong) return;
    }
  }

  #take(): string {
    let length = Math.min(this.#waiting.length, PIECE_LENGTH_MAX);
    const last = this.#waiting.charCodeAt(length - 1);
    const isCutCharacter = length < this.#waiting.length && last >= 0xd800 && last <= 0xdbff;
    if (isCutCharacter) length -= 1;
    const piece = this.#waiting.slice(0, length);
    this.#waiting = this.#waiting.slice(length);
    return piece;
  }

  #dispatch(piece: string): void {
    const life = this.#life;
    this.#underWay += 1;
    this.#count += 1;
    this.#send(piece, `keys-${this.#name}-${this.#count}`).then(
      () => {
        if (life !== this.#life) return;
        this.#underWay -= 1;
        this.#go();
      },
      (error: unknown) => {
        if (life !== this.#life) return;
        // What follows a lost piece makes no sense without it: half a command could do harm.
        const lost = piece + this.#waiting;
        this.clear();
        this.#failed(error, lost);
      },
    );
  }
}
