import { errorText } from "../../lib/format.ts";

/** Something read from the hub, with what goes wrong at it. Asked again, the old answer stays until the new one is there. */
export class Resource<T> {
  data = $state.raw<T | undefined>();
  error = $state<string | undefined>();
  isLoading = $state(false);
  #read: () => Promise<T>;
  #asked = 0;

  constructor(read: () => Promise<T>) {
    this.#read = read;
    void this.load();
  }

  async load(): Promise<void> {
    const now = ++this.#asked;
    this.isLoading = true;
    this.error = undefined;
    try {
      const data = await this.#read();
      if (now === this.#asked) this.data = data;
    } catch (error) {
      if (now === this.#asked) this.error = errorText(error);
    } finally {
      if (now === this.#asked) this.isLoading = false;
    }
  }
}
