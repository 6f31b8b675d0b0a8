import type { Notice } from "@quarterdeck/client";

/** What to do about an error, for who may do something; nothing where it says so itself, or is not the end of it. */
export function adviceFor({ kind, detail }: Pick<Notice, "kind" | "detail">): string | undefined {
  if (kind !== "error") return undefined;
  const { recoverable, phase, code } = typeof detail === "object" && detail !== null ? (detail as Record<string, unknown>) : {};
  // It says itself what to do.
  if (code === "interrupted") return undefined;
  if (recoverable !== true) return "Send a message to start the agent again, or choose Restart in the menu.";
  // In the middle of a turn the agent tries again, or says in the end that it gave up.
  return phase === undefined ? "Send a message to go on." : undefined;
}
