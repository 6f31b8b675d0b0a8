/** What is looked for: kept in the address, so that a search can be shared, reloaded and come back to. */
import { go } from "../lib/browser/router.svelte.ts";

export interface HistoryQuery {
  text: string;
  role: string;
  runnerId: string;
  harness: string;
  sessionId: string;
  /** Days as the date field writes them, `2026-11-15`. */
  from: string;
  to: string;
}

const NAMES = {
  text: "q",
  role: "role",
  runnerId: "runner",
  harness: "harness",
  sessionId: "session",
  from: "from",
  to: "to",
} as const satisfies Record<keyof HistoryQuery, string>;
const KEYS = Object.keys(NAMES) as (keyof HistoryQuery)[];

export function historyQueryOf(query: URLSearchParams): HistoryQuery {
  const wanted = {} as HistoryQuery;
  for (const key of KEYS) wanted[key] = query.get(NAMES[key]) ?? "";
  return wanted;
}

/** How many filters narrow the search. */
export function filterCount(wanted: HistoryQuery): number {
  return KEYS.filter((key) => key !== "text" && wanted[key] !== "").length;
}

/** Writes it into the address; typing makes no entries to go back through. */
export function show(wanted: HistoryQuery, view: string): void {
  const query = new URLSearchParams();
  for (const key of KEYS) if (wanted[key] !== "") query.set(NAMES[key], wanted[key]);
  if (view !== "" && wanted.text.trim() === "") query.set("view", view);
  const text = query.toString();
  go(text === "" ? "/history" : `/history?${text}`, { replace: true });
}

/** When a day begins here, or with `after` the day after it; undefined for what is no day. */
export function dayStart(day: string, after = 0): number | undefined {
  const match = /^(\d{4})-(\d{2})-(\d{2})$/.exec(day);
  if (!match) return undefined;
  return new Date(Number(match[1]), Number(match[2]) - 1, Number(match[3]) + after).getTime();
}
