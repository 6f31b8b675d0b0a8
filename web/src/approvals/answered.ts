import type { Answered, Notice } from "@quarterdeck/client";

/** What became of a question, in a line: who answered it and how. */
export function answeredText({ request, outcome, decision, userId, actor }: Answered, me?: string): string {
  const who = userId === undefined ? "" : ` by ${userId === me ? "you" : userId}${actor && actor !== "web" ? ` (${actor})` : ""}`;
  const decisions = { approve: "approved", deny: "denied", approve_for_session: "allowed for this session", abort: "stopped" };
  const outcomes = { answered: "answered", cancelled: "dismissed", timed_out: "nobody answered in time", withdrawn: "no longer asked" };
  const word = decision ? decisions[decision] : outcomes[outcome ?? "answered"];
  return `${request.title} · ${word}${outcome === "timed_out" || outcome === "withdrawn" ? "" : who}`;
}

const notices = new WeakMap<Answered, Notice>();

/** The same as a divider of the conversation; one answer has one notice, so that its row stays. */
export function answeredNotice(answered: Answered, me?: string): Notice {
  let notice = notices.get(answered);
  if (!notice) {
    const { seq, at: ts, afterIdx } = answered;
    notice = { seq, ts, kind: "lifecycle", text: answeredText(answered, me), afterIdx };
    notices.set(answered, notice);
  }
  return notice;
}
