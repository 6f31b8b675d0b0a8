/** The queue as one list: what steers comes before what waits for the end of the turn. */
import type { QueueState } from "@quarterdeck/client";

export interface QueueEntry {
  kind: "steer" | "follow_up";
  text: string;
}

export function entriesOf(queue: QueueState): QueueEntry[] {
  return [
    ...queue.steering.map((text): QueueEntry => ({ kind: "steer", text })),
    ...queue.follow_up.map((text): QueueEntry => ({ kind: "follow_up", text })),
  ];
}

export function queueOf(entries: readonly QueueEntry[]): QueueState {
  const texts = (kind: QueueEntry["kind"]): string[] => entries.filter((entry) => entry.kind === kind).map((entry) => entry.text);
  return { steering: texts("steer"), follow_up: texts("follow_up") };
}

export function removed(entries: readonly QueueEntry[], index: number): QueueEntry[] {
  return entries.filter((_, at) => at !== index);
}

export function replaced(entries: readonly QueueEntry[], index: number, text: string, kind?: QueueEntry["kind"]): QueueEntry[] {
  return entries.map((entry, at) => (at === index ? { kind: kind ?? entry.kind, text } : entry));
}

/** One place up or down; over the border between the two it changes when it is read. */
export function moved(entries: readonly QueueEntry[], index: number, step: 1 | -1): QueueEntry[] {
  const [entry, other] = [entries[index], entries[index + step]];
  if (!entry || !other) return [...entries];
  if (entry.kind !== other.kind) return replaced(entries, index, entry.text, other.kind);
  return entries.map((kept, at) => (at === index ? other : at === index + step ? entry : kept));
}
