/** Who wants to hear of something. */
import { callBack } from "./pause.ts";

export class Listeners<A extends unknown[]> {
  readonly #all = new Set<(...words: A) => void>();

  get size(): number {
    return this.#all.size;
  }

  /** Returns what takes the listener off again. */
  add(listener: (...words: A) => void): () => void {
    // A wrapper of its own: the same function may be given twice, and each is taken off by itself.
    const one = (...words: A) => listener(...words);
    this.#all.add(one);
    return () => void this.#all.delete(one);
  }

  tell(...words: A): void {
    for (const listener of [...this.#all]) {
      if (this.#all.has(listener)) callBack(listener, ...words);
    }
  }
}
