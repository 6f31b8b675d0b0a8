/** What runs under a hub. */
import { readdirSync, readFileSync } from "node:fs";

/** Every process under one; each of its threads has children of its own. */
export function descendants(pid: number): number[] {
  const lists = readdirSync(`/proc/${pid}/task`).map((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, "utf8"));
  const children = lists.join(" ").split(/\s+/).filter(Boolean).map(Number);
  return children.flatMap((child) => [child, ...descendants(child)]);
}

/** Gives processes a signal; one that ended with its parent meanwhile needs none. */
export function signalAll(pids: readonly number[], signal: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, signal);
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
    }
  }
}
