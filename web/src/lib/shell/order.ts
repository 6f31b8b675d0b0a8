import type { SessionSummary } from "@quarterdeck/client";
import { type Group, groupOf } from "../session/groups.ts";

/**
 * The sessions of a group as the sidebar lists them. Those that work keep their places (by when they were made): a
 * list that jumps while agents talk cannot be clicked.
 */
export function sidebarOrder(sessions: readonly SessionSummary[], group: Group): SessionSummary[] {
  const own = sessions.filter((session) => groupOf(session) === group);
  if (group === "working") return own.sort((one, other) => other.created_at - one.created_at);
  return own.sort((one, other) => other.last_activity - one.last_activity);
}
