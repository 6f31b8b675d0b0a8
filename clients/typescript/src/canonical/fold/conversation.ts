/** The loaded messages of a conversation, by their place in it. Parts of it may be missing: the old ones, or a gap. */
import type { Message } from "../../generated/canonical.ts";

/** Messages `from` to `to` (both included) are not loaded. */
export interface Gap {
  readonly from: number;
  readonly to: number;
}

/** Where a message of this place is, or would be. */
function place(messages: readonly Message[], idx: number): number {
  // Nearly everything comes at the end.
  const last = messages.at(-1);
  if (last === undefined || last.idx < idx) return messages.length;
  let low = 0;
  let high = messages.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((messages[middle]?.idx ?? Infinity) < idx) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Puts a message where it belongs; one of the same place or the same id gives way. */
export function put(messages: Message[], message: Message): void {
  const at = place(messages, message.idx);
  const isThere = messages[at]?.idx === message.idx;
  if (isThere && messages[at]?.id !== message.id) removeById(messages, message.id);
  const now = isThere ? place(messages, message.idx) : at;
  messages.splice(now, messages[now]?.idx === message.idx ? 1 : 0, message);
}

function removeById(messages: Message[], id: string): void {
  const at = messages.findIndex((message) => message.id === id);
  if (at >= 0) messages.splice(at, 1);
}

/** Adds a page; what is loaded already stays as it is, being newer. */
export function addPage(messages: readonly Message[], page: readonly Message[]): Message[] {
  const known = new Set(messages.map((message) => message.idx));
  const added = page.filter((message) => !known.has(message.idx));
  return [...added, ...messages].sort((one, other) => one.idx - other.idx);
}

/**
 * The newest messages, read anew. Older ones that were loaded are kept where the two meet in the same message: what is
 * before it is the same conversation.
 */
export function startFrom(messages: readonly Message[], snapshot: readonly Message[]): Message[] {
  const first = snapshot[0];
  if (!first) return [];
  const at = place(messages, first.idx);
  const isSame = messages[at]?.idx === first.idx && messages[at]?.id === first.id;
  return isSame ? [...messages.slice(0, at), ...snapshot] : [...snapshot];
}

/** What is missing between loaded messages. */
export function gaps(messages: readonly Message[]): Gap[] {
  const found: Gap[] = [];
  for (let at = 1; at < messages.length; at += 1) {
    const from = (messages[at - 1]?.idx ?? 0) + 1;
    const to = (messages[at]?.idx ?? 0) - 1;
    if (from <= to) found.push({ from, to });
  }
  return found;
}
