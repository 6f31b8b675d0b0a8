export type ToastKind = "info" | "error" | "success";

export interface ToastOptions {
  kind?: ToastKind;
  action?: { label: string; run: () => void };
}

export interface Toast extends ToastOptions {
  id: number;
  text: string;
  kind: ToastKind;
}

/** Errors stay longer: they say what to do. */
const SHOWN_MS = { info: 5_000, success: 4_000, error: 10_000 };
const MOST = 4;

class Toasts {
  list = $state<Toast[]>([]);
  #next = 1;
  #timers = new Map<number, ReturnType<typeof setTimeout>>();

  add(text: string, options: ToastOptions = {}): void {
    const kind = options.kind ?? "info";
    const same = this.list.find((toast) => toast.text === text && toast.kind === kind);
    if (same) this.dismiss(same.id);
    const id = this.#next++;
    this.list.push({ ...options, id, text, kind });
    this.resume(id, kind);
    const oldest = this.list[0];
    if (this.list.length > MOST && oldest) this.dismiss(oldest.id);
  }

  dismiss(id: number): void {
    this.pause(id);
    this.list = this.list.filter((toast) => toast.id !== id);
  }

  /** Somebody reads it: it stays. */
  pause(id: number): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
  }

  resume(id: number, kind: ToastKind): void {
    this.pause(id);
    this.#timers.set(
      id,
      setTimeout(() => this.dismiss(id), SHOWN_MS[kind]),
    );
  }
}

export const toasts = new Toasts();
