/** Waits between attempts: doubled up to the longest. */
const PAUSE_FIRST_MS = 100;
const PAUSE_MAX_MS = 5_000;

/** How long to wait before attempt `attempt` (from 1): longer each time, and never the same for two clients. */
export function pause(attempt: number, max: number = PAUSE_MAX_MS): number {
  const longest = Math.min(max, PAUSE_FIRST_MS * 2 ** Math.min(attempt - 1, 16));
  return longest / 2 + (Math.random() * longest) / 2;
}

/** Waits, at most until the signal is given. */
export function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resume) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resume();
    };
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", done);
  });
}

/**
 * Calls a function of the application. What it throws is the application's, not the connection's: it is reported as an
 * uncaught error, as for a listener of an EventTarget, and the client goes on.
 */
export function callBack<A extends unknown[]>(callback: ((...words: A) => void) | undefined, ...words: A): void {
  try {
    callback?.(...words);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
