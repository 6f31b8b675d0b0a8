import { LatestCall } from "../../lib/latestCall.svelte.ts";

/** Something read from the hub, with what goes wrong at it. Asked again, the old answer stays until the new one is there. */
export class Resource<T> extends LatestCall {
  data = $state.raw<T | undefined>();
  #read: () => Promise<T>;

  constructor(read: () => Promise<T>) {
    super();
    this.#read = read;
    void this.load();
  }

  load(): Promise<void> {
    return this.run(this.#read, (data) => (this.data = data));
  }
}
