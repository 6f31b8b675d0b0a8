/** Makes long sessions, cheaply: the demo agent is asked many things at once. */
import type { Hub } from "../tests/support/hub.ts";

/** Prompts on their way at one time; the demo agent's queue takes 64. */
const TOGETHER = 24;

/** Fills a session of the demo agent until it has so many messages, two for each prompt; gives the number of the last. */
export async function fillSession(hub: Hub, sessionId: string, messages: number): Promise<number> {
  let left = messages / 2;
  const ask = async () => {
    while (left > 0) {
      left -= 1;
      await hub.command("prompt", { session_id: sessionId, message: "/long 40", streaming_behavior: "follow_up" });
    }
  };
  await Promise.all(Array.from({ length: TOGETHER }, ask));
  for (;;) {
    const state = await hub.command<{ status: string; message_count: number }>("get_state", { session_id: sessionId });
    if (state.status === "idle" && state.message_count >= messages) break;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const page = await hub.command<{ messages: { idx: number }[] }>("get_messages", { session_id: sessionId });
  return page.messages.at(-1)?.idx ?? 0;
}
