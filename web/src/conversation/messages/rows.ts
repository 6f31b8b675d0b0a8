/** The rows of a conversation: messages, what stands between them, and what is still open at its end. */
import type { InputRequest, Message, Notice, PendingSend } from "@quarterdeck/client";

export type Row =
  | { readonly kind: "message"; readonly key: string; readonly message: Message; readonly isFirst: boolean }
  | { readonly kind: "writing"; readonly key: string; readonly isFirst: boolean }
  | { readonly kind: "gap"; readonly key: string; readonly from: number; readonly to: number }
  | { readonly kind: "notice"; readonly key: string; readonly notice: Notice }
  | { readonly kind: "question"; readonly key: string; readonly request: InputRequest }
  | { readonly kind: "pending"; readonly key: string; readonly pending: PendingSend };

export interface RowSource {
  messages: readonly Message[];
  notices: readonly Notice[];
  questions: readonly InputRequest[];
  pending: readonly PendingSend[];
  /** The message being written, unless it is in `messages` already. */
  writingId?: string | undefined;
  /** What waits with the agent, shown in the queue bar instead. */
  queued: readonly string[];
  hasOlder: boolean;
}

/** Keeps rows that have not changed, so that the list draws only what is new. */
export class RowBuilder {
  private rows = new Map<string, Row>();

  build(source: RowSource): Row[] {
    const rows: Row[] = [];
    const known = new Map<string, Row>();
    const push = (row: Row): void => {
      const before = this.rows.get(row.key);
      const same = before && isSame(before, row) ? before : row;
      known.set(row.key, same);
      rows.push(same);
    };
    const calls = callIds(source.messages);
    let notice = 0;
    const first = source.messages[0]?.idx ?? 0;
    // Notices of messages that are not loaded would stand in the wrong place.
    while (source.hasOlder && (source.notices[notice]?.afterIdx ?? Infinity) < first) notice += 1;
    const noticesTo = (idx: number): void => {
      for (; notice < source.notices.length && (source.notices[notice]?.afterIdx ?? 0) < idx; notice += 1) {
        const entry = source.notices[notice];
        if (entry) push({ kind: "notice", key: `n:${entry.seq}:${entry.kind}:${entry.ts}`, notice: entry });
      }
    };
    let speaker: string | undefined;
    let expected = source.messages[0]?.idx ?? 0;
    for (const message of source.messages) {
      if (message.idx > expected) push({ kind: "gap", key: `g:${expected}`, from: expected, to: message.idx - 1 });
      expected = message.idx + 1;
      noticesTo(message.idx);
      if (!isShown(message, calls)) continue;
      push({ kind: "message", key: `m:${message.id}`, message, isFirst: speakerOf(message) !== speaker });
      speaker = speakerOf(message);
    }
    noticesTo(Infinity);
    if (source.writingId !== undefined && !known.has(`m:${source.writingId}`)) {
      push({ kind: "writing", key: `m:${source.writingId}`, isFirst: speaker !== "assistant" });
    }
    for (const request of source.questions) push({ kind: "question", key: `q:${request.request_id}`, request });
    for (const pending of shownPending(source)) push({ kind: "pending", key: `p:${pending.clientId}`, pending });
    this.rows = known;
    return rows;
  }
}

/** What the agent has taken into its queue stands there; everything else this person sent is shown at the end. */
function shownPending({ pending, queued, messages }: RowSource): PendingSend[] {
  const waiting = [...queued];
  // The message may come a moment before its bubble is taken away.
  const arrived = new Set(messages.slice(-50).map((message) => message.client_id));
  return pending.filter((entry) => {
    if (arrived.has(entry.clientId)) return false;
    const at = entry.status === "sent" ? waiting.indexOf(entry.text) : -1;
    if (at >= 0) waiting.splice(at, 1);
    return at < 0;
  });
}

function isSame(before: Row, after: Row): boolean {
  if (before.kind !== after.kind) return false;
  if (before.kind === "message" && after.kind === "message") return before.message === after.message && before.isFirst === after.isFirst;
  if (before.kind === "writing" && after.kind === "writing") return before.isFirst === after.isFirst;
  if (before.kind === "gap" && after.kind === "gap") return before.to === after.to;
  if (before.kind === "notice" && after.kind === "notice") return before.notice === after.notice;
  if (before.kind === "question" && after.kind === "question") return before.request === after.request;
  return before.kind === "pending" && after.kind === "pending" && before.pending === after.pending;
}

function callIds(messages: readonly Message[]): Set<string> {
  const ids = new Set<string>();
  for (const message of messages) {
    if (message.role !== "assistant") continue;
    for (const part of message.parts) {
      if (part.type === "tool_call" && typeof part.tool_call_id === "string") ids.add(part.tool_call_id);
    }
  }
  return ids;
}

/** Results stand in the card of their call; messages that an extension keeps from people are not shown. */
function isShown(message: Message, calls: ReadonlySet<string>): boolean {
  if (message.metadata?.["display"] === false) return false;
  if (message.role === "tool") return !(message.tool_call_id !== undefined && calls.has(message.tool_call_id));
  return message.parts.length > 0 || message.metadata?.["error"] !== undefined || message.stop_reason === "error";
}

function speakerOf(message: Message): string {
  if (message.role === "tool") return "assistant";
  return message.role === "user" ? `user:${message.sender?.id ?? ""}` : message.role;
}

/** Where a message of this number is, or the nearest one after it. */
export function rowOfIdx(rows: readonly Row[], idx: number): number {
  let before = -1;
  for (let at = 0; at < rows.length; at += 1) {
    const row = rows[at];
    if (row?.kind !== "message") continue;
    if (row.message.idx === idx) return at;
    if (row.message.idx > idx) return before >= 0 ? before : at;
    before = at;
  }
  return before;
}
