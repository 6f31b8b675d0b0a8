/** Stretches of days a person looks at. Days are written as date fields write them, `2026-11-15`, in local time. */

export interface Range {
  from: string;
  /** The last day of it. */
  to: string;
}

export const PRESETS = [
  { id: "7", label: "7 days", days: 7 },
  { id: "30", label: "30 days", days: 30 },
  { id: "90", label: "90 days", days: 90 },
  { id: "365", label: "1 year", days: 365 },
] as const;
export const PRESET_DEFAULT = "30";
/** A chart with more days than this could not be read; the hub may have less. */
export const DAYS_MAX = 1100;

export function dayOf(date: Date): string {
  const two = (number: number) => String(number).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

export function dateOf(day: string): Date | undefined {
  const match = /^(\d{4})-(\d{2})-(\d{2})$/.exec(day);
  if (!match) return undefined;
  const date = new Date(Number(match[1]), Number(match[2]) - 1, Number(match[3]));
  return dayOf(date) === day ? date : undefined;
}

function plusDays(date: Date, days: number): Date {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() + days);
}

/** The last so many days, today included. */
export function lastDays(days: number, now: Date): Range {
  return { from: dayOf(plusDays(now, 1 - days)), to: dayOf(now) };
}

/** The range in an address: `?range=30`, or `?from=…&to=…`. */
export function rangeOf(query: URLSearchParams, now: Date): { range: Range; preset: string } {
  const from = dateOf(query.get("from") ?? "");
  const to = dateOf(query.get("to") ?? "");
  if (from && to && from <= to) {
    const earliest = plusDays(to, 1 - DAYS_MAX);
    return { range: { from: dayOf(from < earliest ? earliest : from), to: dayOf(to) }, preset: "custom" };
  }
  const wanted = PRESETS.find((preset) => preset.id === query.get("range"));
  const preset = wanted ?? PRESETS[1];
  return { range: lastDays(preset.days, now), preset: preset.id };
}

/** Every day of a range, also those on which nothing happened. */
export function daysOf(range: Range): string[] {
  const days: string[] = [];
  const last = dateOf(range.to);
  let day = dateOf(range.from);
  while (day && last && day <= last && days.length < DAYS_MAX) {
    days.push(dayOf(day));
    day = plusDays(day, 1);
  }
  return days;
}

/** The Unix milliseconds between which the range lies; the second is the first that is after it. */
export function bounds(range: Range): { from: number; to: number } {
  const from = dateOf(range.from) ?? new Date(0);
  const to = dateOf(range.to) ?? new Date();
  return { from: from.getTime(), to: plusDays(to, 1).getTime() };
}
