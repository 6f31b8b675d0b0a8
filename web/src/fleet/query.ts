import type { SessionSummary } from "@quarterdeck/client";
import { harnessName } from "../lib/format.ts";
import { type Group, groupOf, groupOrder, titleOf } from "../lib/session/groups.ts";

export type Sort = "activity" | "created" | "title" | "cost";

/** What the fleet shows of all sessions. Empty words mean: all. */
export interface FleetQuery {
  text: string;
  runner: string;
  harness: string;
  group: Group | "";
  sort: Sort;
}

export const sorts: readonly { value: Sort; label: string }[] = [
  { value: "activity", label: "Last activity" },
  { value: "created", label: "Newest" },
  { value: "title", label: "Title" },
  { value: "cost", label: "Cost" },
];

/** Everything of a session that a person may search for. */
function wordsOf(session: SessionSummary, hostname: string): string {
  const words = [
    titleOf(session),
    session.harness,
    session.run_tool,
    session.runner_id,
    hostname,
    session.cwd,
    session.branch,
    session.model,
    session.last_text,
    session.pending_title,
    session.error,
    session.session_id,
  ];
  return words.filter(Boolean).join("\n").toLowerCase();
}

function compare(sort: Sort): (one: SessionSummary, other: SessionSummary) => number {
  switch (sort) {
    case "created":
      return (one, other) => other.created_at - one.created_at;
    case "title":
      return (one, other) => titleOf(one).localeCompare(titleOf(other), undefined, { numeric: true });
    case "cost":
      return (one, other) => (other.cost_usd ?? 0) - (one.cost_usd ?? 0) || other.last_activity - one.last_activity;
    default:
      return (one, other) => other.last_activity - one.last_activity;
  }
}

/** The sessions that are wanted, by group, in the order wanted. All words of the text must occur. */
export function fleetGroups(
  sessions: readonly SessionSummary[],
  query: FleetQuery,
  hostnameOf: (runnerId: string) => string,
): { group: Group; sessions: SessionSummary[] }[] {
  const words = query.text.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = sessions.filter((session) => {
    if (query.runner && session.runner_id !== query.runner) return false;
    if (query.harness && harnessName(session.harness, session.run_tool) !== query.harness) return false;
    if (words.length === 0) return true;
    const text = wordsOf(session, hostnameOf(session.runner_id));
    return words.every((word) => text.includes(word));
  });
  wanted.sort(compare(query.sort));
  return groupOrder.map((group) => ({ group, sessions: wanted.filter((session) => groupOf(session) === group) }));
}

/** The harnesses there are, for the filter. */
export function harnessesOf(sessions: readonly SessionSummary[]): string[] {
  return [...new Set(sessions.map((session) => harnessName(session.harness, session.run_tool)))].sort();
}
