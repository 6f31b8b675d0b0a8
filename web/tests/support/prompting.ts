/** Talking to agents without a page: what a test needs to be there before a person comes. */
import { expect } from "@playwright/test";

import type { Hub } from "./hub.ts";

interface Looked {
  status: string;
  pending_input?: unknown[];
}

/** Says something to an agent and waits until it has answered, or has a question. */
export async function talk(hub: Hub, sessionId: string, ...texts: string[]): Promise<void> {
  for (const message of texts) {
    const before = (await hub.messages(sessionId)).length;
    await hub.command("prompt", { session_id: sessionId, message });
    await expect.poll(() => isQuiet(hub, sessionId, before), { timeout: 30_000, intervals: [50, 100, 250] }).toBe(true);
  }
}

async function isQuiet(hub: Hub, sessionId: string, before: number): Promise<boolean> {
  // Right after the prompt some agents still count as idle, so the answer is looked for first.
  const isAnswered = (await hub.messages(sessionId)).length > before + 1;
  const state = await hub.command<Looked>("get_state", { session_id: sessionId });
  if ((state.pending_input ?? []).length > 0) return true;
  return isAnswered && (state.status === "idle" || state.status === "error");
}
