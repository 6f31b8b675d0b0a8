/** Which of the agent's fork points a message of the conversation is. */
import type { ForkPoint, Message } from "@quarterdeck/client";
import { textOf } from "../messages/parts.ts";

const plain = (text: string): string => text.replace(/\s+/g, " ").trim();

function isOf(point: ForkPoint, text: string): boolean {
  const preview = plain(point.preview).replace(/(…|\.\.\.)$/, "");
  return preview !== "" && plain(text).startsWith(preview);
}

/**
 * Points have no number, so a message is found by its text; where several say the same, counted from the end, because
 * the newest messages are always loaded.
 */
export function forkPointOf(points: readonly ForkPoint[], messages: readonly Message[], wanted: Message): ForkPoint | undefined {
  const text = textOf(wanted);
  const same = points.filter((point) => point.role === "user" && isOf(point, text));
  const later = messages.filter((message) => {
    if (message.role !== "user" || message.idx <= wanted.idx) return false;
    return same.some((point) => isOf(point, textOf(message)));
  });
  return same.at(-1 - later.length);
}
