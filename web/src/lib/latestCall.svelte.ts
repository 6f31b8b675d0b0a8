import { errorText } from "./format.ts";

/** A call to the hub that may be made again before it is answered: the answer to the last one counts, others are dropped. */
export class LatestCall {
  isRunning = $state(false);
  error = $state<string | undefined>();
  #asked = 0;

  async run<T>(ask: () => Promise<T>, take?: (answer: T) => void): Promise<void> {
    const now = ++this.#asked;
    this.isRunning = true;
    this.error = undefined;
    try {
      const answer = await ask();
      if (now === this.#asked) take?.(answer);
    } catch (error) {
      if (now === this.#asked) this.error = errorText(error);
    } finally {
      if (now === this.#asked) this.isRunning = false;
    }
  }

  /** Nothing is asked any more: an answer that is still under way is dropped. */
  forget(): void {
    this.#asked += 1;
    this.isRunning = false;
    this.error = undefined;
  }
}
