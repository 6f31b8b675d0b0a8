import type { Answered, Notice } from "@quarterdeck/client";

/** A row is read at a glance: of a long answer it shows the beginning. */
const ANSWER_CHARACTERS_MAX = 1000;

/** What became of a question, in a line: who answered it, how and what. */
export function answeredText({ request, outcome, decision, userId, actor, answer }: Answered, me?: string): string {
  const who = userId === undefined ? "" : ` by ${userId === me ? "you" : userId}${actor && actor !== "web" ? ` (${actor})` : ""}`;
  const decisions = { approve: "approved", deny: "denied", approve_for_session: "allowed for this session", abort: "stopped" };
  const outcomes = { answered: "answered", cancelled: "dismissed", timed_out: "nobody answered in time", withdrawn: "no longer asked" };
  const word = decision ? decisions[decision] : outcomes[outcome ?? "answered"];
  const what = answer ? `: ${beginning(answer)}` : "";
  return `${request.title} · ${word}${outcome === "timed_out" || outcome === "withdrawn" ? "" : who}${what}`;
}

function beginning(text: string): string {
  const characters = [...text.slice(0, 2 * ANSWER_CHARACTERS_MAX + 2)];
  return characters.length > ANSWER_CHARACTERS_MAX ? `${characters.slice(0, ANSWER_CHARACTERS_MAX).join("")}…` : text;
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
