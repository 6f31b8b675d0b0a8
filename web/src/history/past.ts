/** The list of past sessions: which, in which order, under which day. */
import type { SessionSummary } from "@quarterdeck/client";
import { dayStart, type HistoryQuery } from "./query.ts";

export interface DayOfSessions {
  label: string;
  sessions: SessionSummary[];
}

const DAY_MS = 24 * 3600 * 1000;

/** Those within the filters, the ones last used first. */
export function pastSessions(sessions: readonly SessionSummary[], wanted: HistoryQuery): SessionSummary[] {
  const from = dayStart(wanted.from) ?? -Infinity;
  const to = dayStart(wanted.to, 1) ?? Infinity;
  return sessions
    .filter((session) => wanted.runnerId === "" || session.runner_id === wanted.runnerId)
    .filter((session) => wanted.harness === "" || session.harness === wanted.harness)
    .filter((session) => session.last_activity >= from && session.last_activity < to)
    .toSorted((one, other) => other.last_activity - one.last_activity);
}

export function byDay(sessions: readonly SessionSummary[], now: number): DayOfSessions[] {
  const days: DayOfSessions[] = [];
  for (const session of sessions) {
    const label = dayLabel(session.last_activity, now);
    const day = days.at(-1);
    if (day?.label === label) day.sessions.push(session);
    else days.push({ label, sessions: [session] });
  }
  return days;
}

function dayLabel(at: number, now: number): string {
  const date = new Date(at);
  if (date.toDateString() === new Date(now).toDateString()) return "Today";
  if (date.toDateString() === new Date(now - DAY_MS).toDateString()) return "Yesterday";
  const isThisYear = date.getFullYear() === new Date(now).getFullYear();
  return date.toLocaleDateString([], { weekday: "long", day: "numeric", month: "long", ...(isThisYear ? {} : { year: "numeric" }) });
}
