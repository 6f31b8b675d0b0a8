import type { CallOptions, CommandData, CommandParams, FsChanges } from "@quarterdeck/client";
import { app } from "../lib/app.svelte.ts";

type FileCommand = Extract<keyof CommandParams, `fs.${string}` | `git.${string}`>;

/** A name for the audit trail, and for the question that may be asked before something is changed. */
export function requestId(): string {
  return `web-${crypto.randomUUID()}`;
}

/** A service of the machine, in the directory of a session. What changes something may wait for an approval. */
export function onMachine<C extends FileCommand>(
  sessionId: string,
  command: C,
  parameters: CommandParams[C],
  options: CallOptions = {},
): Promise<CommandData[C]> {
  const named = { ...parameters, actor: "web", request_id: requestId() };
  return app.client.call(command, named, { ...options, sessionId });
}

/** A watch that broke is begun again, after a pause that grows up to this. */
const PAUSE_MS = { first: 500, most: 60_000 } as const;

export interface WatchHandlers {
  changed(changes: FsChanges): void;
  /** From here on nothing is missed; what was before must be read again, all the more after a watch that broke. */
  began(isAgain: boolean): void;
  /** Changes are not told: why, or nothing when they are again. */
  failed(reason: string | undefined): void;
}

/** Tells what changes below the session's directory until it is ended. */
export function watch(sessionId: string, told: WatchHandlers): () => void {
  const ended = new AbortController();
  void follow(sessionId, told, ended.signal);
  return () => ended.abort();
}

async function follow(sessionId: string, told: WatchHandlers, signal: AbortSignal): Promise<void> {
  let pause: number = PAUSE_MS.first;
  let isAgain = false;
  while (!signal.aborted) {
    let hasBegun = false;
    const onProgress = (data: unknown): void => {
      if (signal.aborted) return;
      pause = PAUSE_MS.first;
      if (!hasBegun) {
        hasBegun = true;
        told.failed(undefined);
        told.began(isAgain);
        isAgain = true;
      }
      told.changed(data as FsChanges);
    };
    try {
      await onMachine(sessionId, "fs.watch", {}, { signal, onProgress });
    } catch (error) {
      if (signal.aborted) return;
      told.failed(error instanceof Error ? error.message : String(error));
    }
    await pauseFor(pause, signal);
    pause = Math.min(PAUSE_MS.most, pause * 2);
  }
}

function pauseFor(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
}
